-- Mappings of users to foreign servers: there are none. Tools ask for the relation all the same.
--
-- umid: nothing has one
-- srvid: nothing has one
-- srvname: nothing has one
-- umuser: nothing has one
-- usename: nothing has one
-- umoptions: nothing has one
CREATE VIEW pg_catalog.pg_user_mappings AS
SELECT
    NULL::oid AS umid,
    NULL::oid AS srvid,
    NULL::text AS srvname,
    NULL::oid AS umuser,
    NULL::text AS usename,
    NULL::text[] AS umoptions
WHERE false;
