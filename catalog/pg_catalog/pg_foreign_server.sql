-- Foreign servers. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- srvname: nothing has one
-- srvowner: nothing has one
-- srvfdw: nothing has one
-- srvtype: nothing has one
-- srvversion: nothing has one
-- srvacl: nothing has one
-- srvoptions: nothing has one
CREATE VIEW pg_catalog.pg_foreign_server AS
SELECT
    NULL::oid AS oid,
    NULL::text AS srvname,
    NULL::oid AS srvowner,
    NULL::oid AS srvfdw,
    NULL::text AS srvtype,
    NULL::text AS srvversion,
    NULL::text[] AS srvacl,
    NULL::text[] AS srvoptions
WHERE false;
