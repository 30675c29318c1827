-- The schemas of the session's database and of the system, as the SQL standard describes them.
--
-- catalog_name: the database
-- schema_name: the schema's name
-- schema_owner: the role that owns it
CREATE VIEW information_schema.schemata AS
SELECT coalesce(d.name, current_database()) AS catalog_name, s.name AS schema_name, r.name AS schema_owner
FROM mz_catalog.mz_schemas AS s
LEFT JOIN mz_catalog.mz_databases AS d ON d.id = s.database_id
JOIN mz_catalog.mz_roles AS r ON r.id = s.owner_id
WHERE s.database_id IS NULL OR d.name = current_database();
