-- What is granted on things when they are made, as `ALTER DEFAULT PRIVILEGES` has said.
--
-- role_id: the role that makes them, a key of `mz_roles`; `p`: any role
-- database_id: the database that they are made in, a key of `mz_databases`; NULL: any
-- schema_id: the schema that they are made in, a key of `mz_schemas`; NULL: any
-- object_type: what they are: `table` (any relation), `type`, `schema`, `database` or `cluster`
-- grantee: the role that is granted it, a key of `mz_roles`; `p`: PUBLIC
-- privileges: a letter for each privilege
CREATE SOURCE mz_catalog.mz_default_privileges (
    role_id text NOT NULL,
    database_id text,
    schema_id text,
    object_type text NOT NULL,
    grantee text NOT NULL,
    privileges text NOT NULL
);
