-- What sinks have written; without rows, since changes are read by SUBSCRIBE, COPY and Spark.
--
-- id: the sink, a key of `mz_objects`
-- replica_id: the replica that writes it
-- messages_staged: messages made
-- messages_committed: messages written
-- bytes_staged: their bytes
-- bytes_committed: bytes written
CREATE VIEW mz_internal.mz_sink_statistics AS
SELECT
    NULL::text AS id,
    NULL::text AS replica_id,
    NULL::uint8 AS messages_staged,
    NULL::uint8 AS messages_committed,
    NULL::uint8 AS bytes_staged,
    NULL::uint8 AS bytes_committed
WHERE false;
