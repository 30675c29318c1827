-- The schemas of users and of the system.
--
-- id: the schema's id, the key of this relation
-- oid: the number by which PostgreSQL's tools know it
-- database_id: the database it is in, a key of `mz_databases`; NULL for a schema of the system, which every database shows
-- name: the schema's name
-- owner_id: the role that owns it, a key of `mz_roles`
-- privileges: who was granted what on it, as `grantee=letters/grantor`; nothing before the sign is everybody
CREATE SOURCE mz_catalog.mz_schemas (
    id text NOT NULL,
    oid oid NOT NULL,
    database_id text,
    name text NOT NULL,
    owner_id text NOT NULL,
    privileges mz_aclitem[] NOT NULL
);
