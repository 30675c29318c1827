-- The schemas, as SHOW SCHEMAS has them.
--
-- database: the database it is in; NULL for a schema of the system, which every database shows
-- name: the schema's name
-- comment: what COMMENT ON has said of it, or nothing
CREATE VIEW mz_internal.mz_show_schemas AS
SELECT d.name AS database, s.name, coalesce(c.comment, '') AS comment
FROM mz_catalog.mz_schemas AS s
LEFT JOIN mz_catalog.mz_databases AS d ON d.id = s.database_id
LEFT JOIN mz_internal.mz_comments AS c ON c.id = s.id AND c.object_type = 'schema';
