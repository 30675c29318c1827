-- The databases; each environment has one, `materialize`.
--
-- id: the database's id, the key of this relation
-- oid: the number by which PostgreSQL's tools know it
-- name: the database's name
CREATE SOURCE mz_catalog.mz_databases (
    id text NOT NULL,
    oid uint4 NOT NULL,
    name text NOT NULL
);
