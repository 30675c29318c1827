-- The indexes: arrangements of a relation by a key, kept up to date by a cluster.
--
-- id: the index's id, the key of this relation
-- oid: the number by which PostgreSQL's tools know it
-- name: the index's name, within the schema of what it is on
-- on_id: the relation it is on, a key of `mz_relations`
-- cluster_id: the cluster that maintains it, a key of `mz_clusters`
-- owner_id: the role that owns it, a key of `mz_roles`
-- create_sql: the statement that makes the index
-- redacted_create_sql: `create_sql` without the literals in it
CREATE SOURCE mz_catalog.mz_indexes (
    id text NOT NULL,
    oid oid NOT NULL,
    name text NOT NULL,
    on_id text NOT NULL,
    cluster_id text NOT NULL,
    owner_id text NOT NULL,
    create_sql text,
    redacted_create_sql text
);
