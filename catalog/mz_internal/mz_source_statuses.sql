-- How sources are; without rows, since rows come by statements and Spark.
--
-- id: the source, a key of `mz_objects`
-- name: its name
-- type: what it reads
-- last_status_change_at: since when it is so
-- status: `running`, `stalled`, `failed` or `dropped`
-- error: what failed, if anything
-- details: more of that
CREATE VIEW mz_internal.mz_source_statuses AS
SELECT
    NULL::text AS id,
    NULL::text AS name,
    NULL::text AS type,
    NULL::timestamptz AS last_status_change_at,
    NULL::text AS status,
    NULL::text AS error,
    NULL::jsonb AS details
WHERE false;
