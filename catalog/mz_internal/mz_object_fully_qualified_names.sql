-- Every object with its whole name.
--
-- id: the object's id, a key of `mz_objects`
-- name: the object's name within its schema
-- object_type: `table`, `source`, `view`, `materialized-view`, `index` or `type`
-- schema_id: the schema it is in, a key of `mz_schemas`
-- schema_name: that schema's name
-- database_id: the database it is in, a key of `mz_databases`; NULL for what is the system's
-- database_name: that database's name
-- cluster_id: the cluster that maintains it; NULL where none does
CREATE VIEW mz_internal.mz_object_fully_qualified_names AS
SELECT
    o.id,
    o.name,
    o.type AS object_type,
    s.id AS schema_id,
    s.name AS schema_name,
    d.id AS database_id,
    d.name AS database_name,
    o.cluster_id
FROM mz_catalog.mz_objects AS o
JOIN mz_catalog.mz_schemas AS s ON s.id = o.schema_id
LEFT JOIN mz_catalog.mz_databases AS d ON d.id = s.database_id;
