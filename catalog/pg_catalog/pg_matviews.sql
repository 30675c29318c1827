-- The materialized views that the session's database shows, as PostgreSQL's tools ask for them.
--
-- schemaname: the schema it is in
-- matviewname: the view's name
-- matviewowner: the role that owns it
-- definition: the view's query
CREATE VIEW pg_catalog.pg_matviews AS
SELECT s.name AS schemaname, v.name AS matviewname, r.name AS matviewowner, v.definition
FROM mz_catalog.mz_materialized_views AS v
JOIN mz_catalog.mz_schemas AS s ON s.id = v.schema_id
LEFT JOIN mz_catalog.mz_databases AS d ON d.id = s.database_id
JOIN mz_catalog.mz_roles AS r ON r.id = v.owner_id
WHERE s.database_id IS NULL OR d.name = current_database();
