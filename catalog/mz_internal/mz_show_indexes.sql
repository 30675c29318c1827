-- The indexes with their keys, as SHOW INDEXES has them.
--
-- on_id: the relation it is on, a key of `mz_relations`
-- database: the database it is in
-- schema: the schema it is in
-- name: the index's name
-- on: the name of the relation it is on
-- cluster: the cluster that maintains it
-- key: its key, columns by name
-- comment: what COMMENT ON has said of it, or nothing
CREATE VIEW mz_internal.mz_show_indexes AS
SELECT i.on_id, o.database, o.schema, o.name, r.name AS "on", o.cluster, '{' || k.key || '}' AS key, o.comment
FROM mz_internal.mz_show_all_objects AS o
JOIN mz_catalog.mz_indexes AS i ON i.id = o.id
JOIN mz_catalog.mz_relations AS r ON r.id = i.on_id
JOIN (
    SELECT x.index_id, string_agg(coalesce(c.name, x.on_expression), ',' ORDER BY x.index_position) AS key
    FROM mz_catalog.mz_index_columns AS x
    JOIN mz_catalog.mz_indexes AS j ON j.id = x.index_id
    LEFT JOIN mz_catalog.mz_columns AS c ON c.id = j.on_id AND c.position = x.on_position
    GROUP BY x.index_id
) AS k ON k.index_id = i.id;
