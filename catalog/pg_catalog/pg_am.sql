-- Access methods. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- amname: nothing has one
-- amhandler: nothing has one
-- amtype: nothing has one
CREATE VIEW pg_catalog.pg_am AS
SELECT
    NULL::oid AS oid,
    NULL::text AS amname,
    NULL::regproc AS amhandler,
    NULL::text AS amtype
WHERE false;
