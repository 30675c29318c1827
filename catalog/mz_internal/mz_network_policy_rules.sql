-- The rules of who may connect from where. Empty, as there are no such policies; tools of Materialize ask for it.
--
-- name: nothing has one
-- policy_id: nothing has one
-- action: nothing has one
-- address: nothing has one
-- direction: nothing has one
CREATE VIEW mz_internal.mz_network_policy_rules AS
SELECT
    NULL::text AS name,
    NULL::text AS policy_id,
    NULL::text AS action,
    NULL::text AS address,
    NULL::text AS direction
WHERE false;
