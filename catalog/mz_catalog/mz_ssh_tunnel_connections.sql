-- The tunnels over SSH. Empty, as there is none; tools of Materialize ask for it.
--
-- id: nothing has one
-- public_key_1: nothing has one
-- public_key_2: nothing has one
CREATE VIEW mz_catalog.mz_ssh_tunnel_connections AS
SELECT
    NULL::text AS id,
    NULL::text AS public_key_1,
    NULL::text AS public_key_2
WHERE false;
