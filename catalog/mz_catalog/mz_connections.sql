-- The connections to other systems. Empty, as there is none; tools of Materialize ask for it.
--
-- id: nothing has one
-- oid: nothing has one
-- schema_id: nothing has one
-- name: nothing has one
-- type: nothing has one
-- owner_id: nothing has one
-- privileges: nothing has one
-- create_sql: nothing has one
-- redacted_create_sql: the same without literals
CREATE VIEW mz_catalog.mz_connections AS
SELECT
    NULL::text AS id,
    NULL::oid AS oid,
    NULL::text AS schema_id,
    NULL::text AS name,
    NULL::text AS type,
    NULL::text AS owner_id,
    NULL::mz_aclitem[] AS privileges,
    NULL::text AS create_sql,
    NULL::text AS redacted_create_sql
WHERE false;
