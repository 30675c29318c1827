-- Everything in a schema, by the names of where it is, as SHOW OBJECTS, SHOW TABLES and their like have it.
--
-- id: the object's id, a key of `mz_objects`
-- database: the database it is in; NULL for an object of the system, which every database shows
-- schema: the schema it is in
-- name: its name within its schema
-- type: `table`, `source`, `view`, `materialized-view`, `index` or `type`
-- cluster: the cluster that maintains it; NULL where none does
-- comment: what COMMENT ON has said of it, or nothing
CREATE VIEW mz_internal.mz_show_all_objects AS
SELECT
    o.id,
    d.name AS database,
    s.name AS schema,
    o.name,
    o.type,
    k.name AS cluster,
    coalesce(c.comment, '') AS comment
FROM mz_catalog.mz_objects AS o
JOIN mz_catalog.mz_schemas AS s ON s.id = o.schema_id
LEFT JOIN mz_catalog.mz_databases AS d ON d.id = s.database_id
LEFT JOIN mz_catalog.mz_clusters AS k ON k.id = o.cluster_id
LEFT JOIN mz_internal.mz_comments AS c ON c.id = o.id AND c.object_type = o.type AND c.object_sub_id IS NULL;
