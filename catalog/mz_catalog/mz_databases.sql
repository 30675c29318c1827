-- The databases; an environment begins with one, `materialize`.
--
-- id: the database's id, the key of this relation
-- oid: the number by which PostgreSQL's tools know it
-- name: the database's name
-- owner_id: the role that owns it, a key of `mz_roles`
-- privileges: who was granted what on it, as `grantee=letters/grantor`; nothing before the sign is everybody
CREATE SOURCE mz_catalog.mz_databases (
    id text NOT NULL,
    oid oid NOT NULL,
    name text NOT NULL,
    owner_id text NOT NULL,
    privileges mz_aclitem[] NOT NULL
);
