-- What `pg_type` has, of all databases: a row for each type.
--
-- oid: the type's number
-- typname: its name
-- typnamespace: the number of the schema it is in
-- typowner: the number of the role that owns it
-- category: as in `mz_types`
-- typelem: the number of the type that an array of this type has in it; 0 where it is no array
-- typarray: the number of the type of arrays of it; 0 where there is none
-- schema_name: the schema it is in
-- database_name: the database it is in; NULL for the system's
CREATE SOURCE mz_internal.mz_pg_type (
    oid oid NOT NULL,
    typname text NOT NULL,
    typnamespace oid NOT NULL,
    typowner oid NOT NULL,
    category text NOT NULL,
    typelem oid NOT NULL,
    typarray oid NOT NULL,
    schema_name text NOT NULL,
    database_name text
);
