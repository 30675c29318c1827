-- Each privilege that a role has on something, as SHOW PRIVILEGES has it.
--
-- grantor: the role that granted it
-- grantee: the role that has it, or `PUBLIC`
-- database: the database of what it is on; NULL for what is in none
-- schema: the schema of what it is on; NULL for what is in none
-- name: the name of what it is on; NULL for the system
-- object_type: `table`, `view`, `materialized-view`, `type`, `schema`, `database`, `cluster` or `system`
-- privilege_type: the privilege, such as `SELECT`
CREATE SOURCE mz_internal.mz_show_all_privileges (
    grantor text NOT NULL,
    grantee text NOT NULL,
    database text,
    schema text,
    name text,
    object_type text NOT NULL,
    privilege_type text NOT NULL
);
