-- How sources have been; without rows, since rows come by statements and Spark.
--
-- occurred_at: when
-- source_id: the source, a key of `mz_objects`
-- status: what it became
-- error: what failed, if anything
-- details: more of that
-- replica_id: the replica that said so
CREATE VIEW mz_internal.mz_source_status_history AS
SELECT
    NULL::timestamptz AS occurred_at,
    NULL::text AS source_id,
    NULL::text AS status,
    NULL::text AS error,
    NULL::jsonb AS details,
    NULL::text AS replica_id
WHERE false;
