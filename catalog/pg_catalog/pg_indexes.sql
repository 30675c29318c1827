-- The indexes that the session's database shows, as PostgreSQL's tools ask for them.
--
-- schemaname: the schema it is in
-- tablename: what it is on
-- indexname: the index's name
-- tablespace: NULL
-- indexdef: the statement that makes it, as PostgreSQL would write it
CREATE VIEW pg_catalog.pg_indexes AS
SELECT
    s.name AS schemaname,
    r.name AS tablename,
    i.name AS indexname,
    NULL::text AS tablespace,
    pg_catalog.pg_get_indexdef(i.oid) AS indexdef
FROM mz_catalog.mz_indexes AS i
JOIN mz_catalog.mz_relations AS r ON r.id = i.on_id
JOIN mz_catalog.mz_schemas AS s ON s.id = r.schema_id
LEFT JOIN mz_catalog.mz_databases AS d ON d.id = s.database_id
WHERE s.database_id IS NULL OR d.name = current_database();
