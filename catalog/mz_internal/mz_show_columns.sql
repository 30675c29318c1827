-- The columns of every relation with what COMMENT ON has said of them, as SHOW COLUMNS has them.
--
-- id: the relation, a key of `mz_relations`
-- name: the column's name
-- nullable: whether it may be NULL
-- type: the column's type, without its modifiers
-- position: the column's place in the relation, counted from 1
-- comment: what COMMENT ON has said of it, or nothing
CREATE VIEW mz_internal.mz_show_columns AS
SELECT k.id, k.name, k.nullable, k.type, k.position, coalesce(c.comment, '') AS comment
FROM mz_catalog.mz_columns AS k
JOIN mz_catalog.mz_relations AS r ON r.id = k.id
LEFT JOIN mz_internal.mz_comments AS c
    ON c.id = k.id AND c.object_type = r.type AND c.object_sub_id = k.position::integer;
