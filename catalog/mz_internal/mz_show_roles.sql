-- The roles but the system's, as SHOW ROLES has them.
--
-- name: the role's name
-- comment: what COMMENT ON has said of it, or nothing
CREATE VIEW mz_internal.mz_show_roles AS
SELECT r.name, coalesce(c.comment, '') AS comment
FROM mz_catalog.mz_roles AS r
LEFT JOIN mz_internal.mz_comments AS c ON c.id = r.id AND c.object_type = 'role'
WHERE r.id NOT LIKE 's%';
