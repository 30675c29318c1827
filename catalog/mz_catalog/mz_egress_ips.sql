-- The addresses that connections to other systems come from. Empty, as there are no connections; tools of Materialize ask for it.
--
-- egress_ip: nothing has one
-- prefix_length: nothing has one
-- cidr: nothing has one
CREATE VIEW mz_catalog.mz_egress_ips AS
SELECT
    NULL::text AS egress_ip,
    NULL::integer AS prefix_length,
    NULL::text AS cidr
WHERE false;
