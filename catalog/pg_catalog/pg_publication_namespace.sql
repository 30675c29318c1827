-- Schemas of publications. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- pnpubid: nothing has one
-- pnnspid: nothing has one
CREATE VIEW pg_catalog.pg_publication_namespace AS
SELECT
    NULL::oid AS oid,
    NULL::oid AS pnpubid,
    NULL::oid AS pnnspid
WHERE false;
