-- The views, as the SQL standard describes them; of the session's database and the system.
--
-- table_catalog: the database
-- table_schema: the schema it is in
-- table_name: the view's name
-- view_definition: the view's query
CREATE VIEW information_schema.views AS
SELECT
    coalesce(d.name, current_database()) AS table_catalog,
    s.name AS table_schema,
    v.name AS table_name,
    v.definition AS view_definition
FROM mz_catalog.mz_views AS v
JOIN mz_catalog.mz_schemas AS s ON s.id = v.schema_id
LEFT JOIN mz_catalog.mz_databases AS d ON d.id = s.database_id
WHERE s.database_id IS NULL OR d.name = current_database();
