-- What sources could read; without rows, since there are none.
--
-- source_id: the source, a key of `mz_objects`
-- namespace: the schema or topic there
-- name: the table there
-- updated_at: when that was asked
-- columns: its columns
CREATE VIEW mz_internal.mz_source_references AS
SELECT
    NULL::text AS source_id,
    NULL::text AS namespace,
    NULL::text AS name,
    NULL::timestamptz AS updated_at,
    NULL::text[] AS columns
WHERE false;
