-- What `pg_namespace` has, of all databases: a row for each schema.
--
-- oid: the schema's number
-- nspname: its name
-- nspowner: the number of the role that owns it
-- database_name: the database it is in; NULL for the system's
CREATE SOURCE mz_internal.mz_pg_namespace (
    oid oid NOT NULL,
    nspname text NOT NULL,
    nspowner oid NOT NULL,
    database_name text
);
