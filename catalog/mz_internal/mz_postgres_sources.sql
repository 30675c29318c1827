-- Sources that read a PostgreSQL; without rows, since none does.
--
-- id: the source, a key of `mz_objects`
-- replication_slot: the slot there
-- timeline_id: the timeline there
CREATE VIEW mz_internal.mz_postgres_sources AS
SELECT
    NULL::text AS id,
    NULL::text AS replication_slot,
    NULL::uint8 AS timeline_id
WHERE false;
