-- The columns of the relations in `pg_class`, as PostgreSQL's tools ask for them.
--
-- attrelid: the relation, a key of `pg_class`
-- attname: the column's name
-- atttypid: the number of its type, a key of `pg_type`
-- attlen: how many bytes a value has in PostgreSQL; -1 where that depends on the value
-- attnum: the column's place in the relation, counted from 1
-- atttypmod: the type's modifier as PostgreSQL packs it; -1 where it has none
-- attndims: 1 for an array, 0 otherwise
-- attnotnull: whether it cannot be NULL
-- atthasdef: whether it has a default
-- attidentity: empty: no column is made by itself
-- attgenerated: empty: no column is made by itself
-- attisdropped: false
-- attcollation: 0: texts are compared by their bytes
CREATE VIEW pg_catalog.pg_attribute AS
SELECT
    o.attrelid,
    o.attname,
    o.atttypid,
    CASE
        WHEN o.atttypid IN (16) THEN 1
        WHEN o.atttypid IN (21, 16460) THEN 2
        WHEN o.atttypid IN (23, 24, 26, 700, 1082, 2205, 2206, 2276, 2283, 16462) THEN 4
        WHEN o.atttypid IN (20, 701, 1083, 1114, 1184, 16464, 16552) THEN 8
        WHEN o.atttypid IN (1186, 2950) THEN 16
        ELSE -1
    END::smallint AS attlen,
    o.attnum,
    o.atttypmod,
    o.attndims,
    NOT o.nullable AS attnotnull,
    o.column_default IS NOT NULL AS atthasdef,
    ''::"char" AS attidentity,
    ''::"char" AS attgenerated,
    false AS attisdropped,
    0::oid AS attcollation
FROM mz_internal.mz_pg_attribute AS o
WHERE o.database_name IS NULL OR o.database_name = current_database();
