-- What sources have read; without rows, since rows come by statements and Spark.
--
-- id: the source, a key of `mz_objects`
-- replica_id: the replica that reads it
-- messages_received: messages read
-- bytes_received: bytes read
-- updates_staged: updates made of them
-- updates_committed: updates that can be read
-- records_indexed: rows kept to tell what they replace
-- bytes_indexed: their bytes
-- rehydration_latency: how long it took to go on
-- snapshot_records_known: rows of its first contents
-- snapshot_records_staged: rows of these that were read
-- snapshot_committed: whether these can be read
-- offset_known: how far there is something to read
-- offset_committed: how far it was read
CREATE VIEW mz_internal.mz_source_statistics AS
SELECT
    NULL::text AS id,
    NULL::text AS replica_id,
    NULL::uint8 AS messages_received,
    NULL::uint8 AS bytes_received,
    NULL::uint8 AS updates_staged,
    NULL::uint8 AS updates_committed,
    NULL::uint8 AS records_indexed,
    NULL::uint8 AS bytes_indexed,
    NULL::interval AS rehydration_latency,
    NULL::uint8 AS snapshot_records_known,
    NULL::uint8 AS snapshot_records_staged,
    NULL::boolean AS snapshot_committed,
    NULL::uint8 AS offset_known,
    NULL::uint8 AS offset_committed
WHERE false;
