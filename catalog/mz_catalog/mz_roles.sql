-- The roles. Every role may do everything; a role says who owns what.
--
-- id: the role's id, the key of this relation
-- oid: the number by which PostgreSQL's tools know it
-- name: the role's name
-- inherit: whether it has what the roles have that it is a member of
CREATE SOURCE mz_catalog.mz_roles (
    id text NOT NULL,
    oid oid NOT NULL,
    name text NOT NULL,
    inherit boolean NOT NULL
);
