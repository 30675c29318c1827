-- The schemas that the session's database shows, as PostgreSQL's tools ask for them.
--
-- oid: the schema's number, as in `mz_schemas`
-- nspname: the schema's name
-- nspowner: the number of the role that owns it
-- nspacl: NULL: `mz_schemas` has the privileges
CREATE VIEW pg_catalog.pg_namespace AS
SELECT s.oid, s.name AS nspname, r.oid AS nspowner, NULL::text[] AS nspacl
FROM mz_catalog.mz_schemas AS s
LEFT JOIN mz_catalog.mz_databases AS d ON d.id = s.database_id
JOIN mz_catalog.mz_roles AS r ON r.id = s.owner_id
WHERE s.database_id IS NULL OR d.name = current_database();
