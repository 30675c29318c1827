-- The databases, as SHOW DATABASES has them.
--
-- name: the database's name
-- comment: what COMMENT ON has said of it, or nothing
CREATE VIEW mz_internal.mz_show_databases AS
SELECT d.name, coalesce(c.comment, '') AS comment
FROM mz_catalog.mz_databases AS d
LEFT JOIN mz_internal.mz_comments AS c ON c.id = d.id AND c.object_type = 'database';
