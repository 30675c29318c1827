-- What can stand in FROM, as the SQL standard describes it; of the session's database and the system.
--
-- table_catalog: the database
-- table_schema: the schema it is in
-- table_name: its name
-- table_type: `BASE TABLE`, `SOURCE`, `VIEW` or `MATERIALIZED VIEW`
CREATE VIEW information_schema.tables AS
SELECT
    coalesce(o.database_name, current_database()) AS table_catalog,
    o.schema_name AS table_schema,
    o.relname AS table_name,
    CASE o.type WHEN 'table' THEN 'BASE TABLE' ELSE upper(replace(o.type, '-', ' ')) END AS table_type
FROM mz_internal.mz_pg_class AS o
WHERE o.relkind <> 'i' AND (o.database_name IS NULL OR o.database_name = current_database());
