-- Who may connect from where. Empty, as there are no such policies; tools of Materialize ask for it.
--
-- id: nothing has one
-- name: nothing has one
-- owner_id: nothing has one
-- privileges: nothing has one
-- oid: nothing has one
CREATE VIEW mz_internal.mz_network_policies AS
SELECT
    NULL::text AS id,
    NULL::text AS name,
    NULL::text AS owner_id,
    NULL::mz_aclitem[] AS privileges,
    NULL::oid AS oid
WHERE false;
