-- What `pg_attribute` has, of all databases: a row for each column of each relation.
--
-- attrelid: the relation, as `oid` of `mz_pg_class`
-- attname: the column's name
-- atttypid: the number of its type
-- attnum: its position, from 1
-- atttypmod: what its type is limited to; -1 where it is not
-- attndims: 1 for an array
-- nullable: whether it may be NULL
-- column_default: its default; NULL where it has none
-- database_name: the database that the relation is in; NULL for the system's
CREATE SOURCE mz_internal.mz_pg_attribute (
    attrelid oid NOT NULL,
    attname text NOT NULL,
    atttypid oid NOT NULL,
    attnum smallint NOT NULL,
    atttypmod integer NOT NULL,
    attndims smallint NOT NULL,
    nullable boolean NOT NULL,
    column_default text,
    database_name text
);
