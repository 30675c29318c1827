-- The types, as PostgreSQL's tools ask for them.
--
-- oid: the type's number, as in `mz_types`
-- typname: the type's name
-- typnamespace: the schema it is in, a key of `pg_namespace`
-- typowner: the number of the role that owns it
-- typlen: how many bytes a value has in PostgreSQL; -1 where that depends on the value
-- typtype: `p` for a pseudo-type, `r` for a range, `b` for all others
-- typcategory: the kind of type by PostgreSQL's letters: `B` boolean, `N` number, `S` string, `D` date or time, `T` interval, `A` array or list, `R` range, `U` other
-- typdelim: `,`
-- typrelid: 0
-- typelem: of an array the type of its elements, else 0
-- typarray: the type of an array of it; 0 where there is none
-- typbasetype: 0
-- typcollation: 0
-- typnotnull: false
-- typtypmod: -1: types are not made of others with a modifier
-- typdefault: NULL: types have no defaults
-- typndims: 0
-- typisdefined: true
-- typispreferred: false
-- typacl: NULL: `mz_types` has the privileges
-- typinput: 0: no function of SQL reads values of a type
-- typoutput: 0: none writes them
-- typreceive: 0
-- typsend: 0
CREATE VIEW pg_catalog.pg_type AS
SELECT
    t.oid,
    t.typname,
    t.typnamespace,
    t.typowner,
    CASE
        WHEN t.oid IN (16) THEN 1
        WHEN t.oid IN (21, 16460) THEN 2
        WHEN t.oid IN (23, 24, 26, 700, 1082, 2205, 2206, 2276, 2283, 16462) THEN 4
        WHEN t.oid IN (20, 701, 1083, 1114, 1184, 16464, 16552) THEN 8
        WHEN t.oid IN (1186, 2950) THEN 16
        ELSE -1
    END::smallint AS typlen,
    (CASE t.category WHEN 'pseudo' THEN 'p' WHEN 'range' THEN 'r' ELSE 'b' END)::"char" AS typtype,
    (CASE t.category
        WHEN 'boolean' THEN 'B' WHEN 'numeric' THEN 'N' WHEN 'string' THEN 'S' WHEN 'date-time' THEN 'D'
        WHEN 'timespan' THEN 'T' WHEN 'array' THEN 'A' WHEN 'list' THEN 'A' WHEN 'pseudo' THEN 'P' WHEN 'range' THEN 'R' ELSE 'U'
    END)::"char" AS typcategory,
    ','::"char" AS typdelim,
    0::oid AS typrelid,
    t.typelem,
    t.typarray,
    0::oid AS typbasetype,
    0::oid AS typcollation,
    false AS typnotnull,
    -1 AS typtypmod,
    NULL::text AS typdefault,
    0 AS typndims,
    true AS typisdefined,
    false AS typispreferred,
    NULL::text[] AS typacl,
    0::oid AS typinput,
    0::oid AS typoutput,
    0::oid AS typreceive,
    0::oid AS typsend
FROM mz_internal.mz_pg_type AS t;
