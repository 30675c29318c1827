-- What can stand in FROM, as the SQL standard describes it; of the session's database and the system.
--
-- table_catalog: the database
-- table_schema: the schema it is in
-- table_name: its name
-- table_type: `BASE TABLE`, `SOURCE`, `VIEW` or `MATERIALIZED VIEW`
CREATE VIEW information_schema.tables AS
SELECT
    coalesce(d.name, current_database()) AS table_catalog,
    s.name AS table_schema,
    r.name AS table_name,
    CASE r.type WHEN 'table' THEN 'BASE TABLE' ELSE upper(replace(r.type, '-', ' ')) END AS table_type
FROM mz_catalog.mz_relations AS r
JOIN mz_catalog.mz_schemas AS s ON s.id = r.schema_id
LEFT JOIN mz_catalog.mz_databases AS d ON d.id = s.database_id
WHERE s.database_id IS NULL OR d.name = current_database();
