-- The schemas that the session's database shows, as PostgreSQL's tools ask for them.
--
-- oid: the schema's number, as in `mz_schemas`
-- nspname: the schema's name
-- nspowner: the number of the role that owns it
-- nspacl: NULL: `mz_schemas` has the privileges
CREATE VIEW pg_catalog.pg_namespace AS
SELECT o.oid, o.nspname, o.nspowner, NULL::text[] AS nspacl
FROM mz_internal.mz_pg_namespace AS o
WHERE o.database_name IS NULL OR o.database_name = current_database();
