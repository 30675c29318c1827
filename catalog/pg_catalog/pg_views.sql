-- The views that the session's database shows, those of the system included, as PostgreSQL's tools ask for them.
--
-- schemaname: the schema it is in
-- viewname: the view's name
-- viewowner: the role that owns it
-- definition: the view's query
CREATE VIEW pg_catalog.pg_views AS
SELECT s.name AS schemaname, v.name AS viewname, r.name AS viewowner, v.definition
FROM mz_catalog.mz_views AS v
JOIN mz_catalog.mz_schemas AS s ON s.id = v.schema_id
LEFT JOIN mz_catalog.mz_databases AS d ON d.id = s.database_id
JOIN mz_catalog.mz_roles AS r ON r.id = v.owner_id
WHERE s.database_id IS NULL OR d.name = current_database();
