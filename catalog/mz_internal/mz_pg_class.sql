-- What `pg_class` and `information_schema.tables` have, of all databases: a row for each relation and index.
--
-- id: the object, a key of `mz_objects`
-- oid: its number, as in `mz_objects`
-- relname: its name
-- type: what kind of object it is, as in `mz_objects`
-- relnamespace: the number of the schema it is in
-- relowner: the number of the role that owns it
-- relhasindex: whether there is an index on it
-- relkind: `r` for a table or a source, `i` for an index, `v` for a view, `m` for a materialized view
-- relnatts: how many columns it has
-- schema_name: the schema it is in
-- database_name: the database it is in; NULL for the system's
CREATE SOURCE mz_internal.mz_pg_class (
    id text NOT NULL,
    oid oid NOT NULL,
    relname text NOT NULL,
    type text NOT NULL,
    relnamespace oid NOT NULL,
    relowner oid NOT NULL,
    relhasindex boolean NOT NULL,
    relkind "char" NOT NULL,
    relnatts smallint NOT NULL,
    schema_name text NOT NULL,
    database_name text
);
