-- What `pg_index` has, of all databases: a row for each index.
--
-- indexrelid: the index, as `oid` of `mz_pg_class`
-- indrelid: what it is on, as `oid` of `mz_pg_class`
-- indkey: the positions of its keys' columns, from 1; 0 for an expression
-- indoption: a 0 for each key
-- indnatts: how many keys it has
-- keys: its keys, as a person reads them
-- index_name: its name
-- relation_name: the name of what it is on
CREATE SOURCE mz_internal.mz_pg_index (
    indexrelid oid NOT NULL,
    indrelid oid NOT NULL,
    indkey smallint[],
    indoption smallint[],
    indnatts smallint NOT NULL,
    keys text[] NOT NULL,
    index_name text NOT NULL,
    relation_name text NOT NULL
);
