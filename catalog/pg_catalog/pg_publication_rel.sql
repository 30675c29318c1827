-- Relations of publications. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- prpubid: nothing has one
-- prrelid: nothing has one
-- prqual: nothing has one
-- prattrs: nothing has one
CREATE VIEW pg_catalog.pg_publication_rel AS
SELECT
    NULL::oid AS oid,
    NULL::oid AS prpubid,
    NULL::oid AS prrelid,
    NULL::text AS prqual,
    NULL::smallint[] AS prattrs
WHERE false;
