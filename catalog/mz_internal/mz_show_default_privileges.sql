-- Each privilege that is granted on things when they are made, as SHOW DEFAULT PRIVILEGES has it.
--
-- object_owner: the role that makes them; `PUBLIC`: any role
-- database: the database that they are made in; NULL: any
-- schema: the schema that they are made in; NULL: any
-- object_type: what they are: `table` (any relation), `type`, `schema`, `database` or `cluster`
-- grantee: the role that is granted it, or `PUBLIC`
-- privilege_type: the privilege, such as `SELECT`
CREATE SOURCE mz_internal.mz_show_default_privileges (
    object_owner text NOT NULL,
    database text,
    schema text,
    object_type text NOT NULL,
    grantee text NOT NULL,
    privilege_type text NOT NULL
);
