-- Tablespaces, as PostgreSQL's tools ask for them: there is the one of all.
--
-- oid: 0
-- spcname: `pg_default`
-- spcowner: NULL
-- spcacl: NULL
-- spcoptions: NULL
CREATE VIEW pg_catalog.pg_tablespace AS
SELECT 0::oid AS oid, 'pg_default' AS spcname, NULL::oid AS spcowner, NULL::text[] AS spcacl, NULL::text[] AS spcoptions;
