-- The tables that the session's database shows, as PostgreSQL's tools ask for them.
--
-- schemaname: the schema it is in
-- tablename: the table's name
-- tableowner: the role that owns it
CREATE VIEW pg_catalog.pg_tables AS
SELECT s.name AS schemaname, t.name AS tablename, r.name AS tableowner
FROM mz_catalog.mz_tables AS t
JOIN mz_catalog.mz_schemas AS s ON s.id = t.schema_id
LEFT JOIN mz_catalog.mz_databases AS d ON d.id = s.database_id
JOIN mz_catalog.mz_roles AS r ON r.id = t.owner_id
WHERE s.database_id IS NULL OR d.name = current_database();
