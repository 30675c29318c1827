-- The types, as PostgreSQL's tools ask for them.
--
-- oid: the type's number, as in `mz_types`
-- typname: the type's name
-- typnamespace: the schema it is in, a key of `pg_namespace`
-- typowner: the number of the role that owns it
-- typtype: `p` for a pseudo-type, `b` for all others
-- typcategory: the kind of type by PostgreSQL's letters: `B` boolean, `N` number, `S` string, `D` date or time, `T` interval, `A` array or list, `U` other
-- typrelid: 0
-- typelem: 0
-- typarray: 0
-- typbasetype: 0
-- typcollation: 0
-- typnotnull: false
CREATE VIEW pg_catalog.pg_type AS
SELECT
    t.oid,
    t.name AS typname,
    s.oid AS typnamespace,
    r.oid AS typowner,
    CASE t.category WHEN 'pseudo' THEN 'p' ELSE 'b' END AS typtype,
    CASE t.category
        WHEN 'boolean' THEN 'B' WHEN 'numeric' THEN 'N' WHEN 'string' THEN 'S' WHEN 'date-time' THEN 'D'
        WHEN 'timespan' THEN 'T' WHEN 'array' THEN 'A' WHEN 'list' THEN 'A' WHEN 'pseudo' THEN 'P' ELSE 'U'
    END AS typcategory,
    0::uint4 AS typrelid,
    0::uint4 AS typelem,
    0::uint4 AS typarray,
    0::uint4 AS typbasetype,
    0::uint4 AS typcollation,
    false AS typnotnull
FROM mz_catalog.mz_types AS t
JOIN mz_catalog.mz_schemas AS s ON s.id = t.schema_id
JOIN mz_catalog.mz_roles AS r ON r.id = t.owner_id;
