-- The secrets. Empty, as there is none; tools of Materialize ask for it.
--
-- id: nothing has one
-- oid: nothing has one
-- schema_id: nothing has one
-- name: nothing has one
-- owner_id: nothing has one
-- privileges: nothing has one
CREATE VIEW mz_catalog.mz_secrets AS
SELECT
    NULL::text AS id,
    NULL::oid AS oid,
    NULL::text AS schema_id,
    NULL::text AS name,
    NULL::text AS owner_id,
    NULL::mz_aclitem[] AS privileges
WHERE false;
