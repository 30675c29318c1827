-- The sinks. Empty, as there is none; tools of Materialize ask for it.
--
-- id: nothing has one
-- oid: nothing has one
-- schema_id: nothing has one
-- name: nothing has one
-- type: nothing has one
-- connection_id: nothing has one
-- size: nothing has one
-- envelope_type: nothing has one
-- format: nothing has one
-- key_format: nothing has one
-- value_format: nothing has one
-- cluster_id: nothing has one
-- owner_id: nothing has one
-- create_sql: nothing has one
-- redacted_create_sql: nothing has one
CREATE VIEW mz_catalog.mz_sinks AS
SELECT
    NULL::text AS id,
    NULL::oid AS oid,
    NULL::text AS schema_id,
    NULL::text AS name,
    NULL::text AS type,
    NULL::text AS connection_id,
    NULL::text AS size,
    NULL::text AS envelope_type,
    NULL::text AS format,
    NULL::text AS key_format,
    NULL::text AS value_format,
    NULL::text AS cluster_id,
    NULL::text AS owner_id,
    NULL::text AS create_sql,
    NULL::text AS redacted_create_sql
WHERE false;
