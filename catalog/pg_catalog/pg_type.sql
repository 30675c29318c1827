-- The types, as PostgreSQL's tools ask for them.
--
-- oid: the type's number, as in `mz_types`
-- typname: the type's name
-- typnamespace: the schema it is in, a key of `pg_namespace`
-- typowner: the number of the role that owns it
-- typtype: `p` for a pseudo-type, `r` for a range, `b` for all others
-- typcategory: the kind of type by PostgreSQL's letters: `B` boolean, `N` number, `S` string, `D` date or time, `T` interval, `A` array or list, `R` range, `U` other
-- typdelim: `,`
-- typrelid: 0
-- typelem: of an array the type of its elements, else 0
-- typarray: the type of an array of it; 0 where there is none
-- typbasetype: 0
-- typcollation: 0
-- typnotnull: false
CREATE VIEW pg_catalog.pg_type AS
SELECT
    t.oid,
    t.name AS typname,
    s.oid AS typnamespace,
    r.oid AS typowner,
    CASE t.category WHEN 'pseudo' THEN 'p' WHEN 'range' THEN 'r' ELSE 'b' END AS typtype,
    CASE t.category
        WHEN 'boolean' THEN 'B' WHEN 'numeric' THEN 'N' WHEN 'string' THEN 'S' WHEN 'date-time' THEN 'D'
        WHEN 'timespan' THEN 'T' WHEN 'array' THEN 'A' WHEN 'list' THEN 'A' WHEN 'pseudo' THEN 'P' WHEN 'range' THEN 'R' ELSE 'U'
    END AS typcategory,
    ',' AS typdelim,
    0::oid AS typrelid,
    coalesce(e.oid, 0) AS typelem,
    coalesce(a.oid, 0) AS typarray,
    0::oid AS typbasetype,
    0::oid AS typcollation,
    false AS typnotnull
FROM mz_catalog.mz_types AS t
JOIN mz_catalog.mz_schemas AS s ON s.id = t.schema_id
JOIN mz_catalog.mz_roles AS r ON r.id = t.owner_id
LEFT JOIN mz_catalog.mz_array_types AS of_elements ON of_elements.id = t.id
LEFT JOIN mz_catalog.mz_types AS e ON e.id = of_elements.element_id
LEFT JOIN mz_catalog.mz_array_types AS in_array ON in_array.element_id = t.id
LEFT JOIN mz_catalog.mz_types AS a ON a.id = in_array.id;
