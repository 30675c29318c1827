-- The sources, as SHOW SOURCES has them.
--
-- database: the database it is in; NULL for a source of the system, which every database shows
-- schema: the schema it is in
-- name: the source's name within its schema
-- type: what fills it: `system`
-- cluster: the cluster that maintains it; NULL where none does
-- comment: what COMMENT ON has said of it, or nothing
CREATE VIEW mz_internal.mz_show_sources AS
SELECT o.database, o.schema, o.name, s.type, o.cluster, o.comment
FROM mz_internal.mz_show_all_objects AS o
JOIN mz_catalog.mz_sources AS s ON s.id = o.id;
