-- Everything in a schema: relations, indexes and types.
--
-- id: the object's id, the key of this relation
-- oid: the number by which PostgreSQL's tools know it
-- schema_id: the schema it is in, a key of `mz_schemas`
-- name: the object's name within its schema
-- type: `table`, `source`, `view`, `materialized-view`, `index` or `type`
-- owner_id: the role that owns it, a key of `mz_roles`
-- cluster_id: the cluster that maintains it; NULL where none does
-- privileges: who was granted what on it; NULL for an index, which nothing is granted on
CREATE SOURCE mz_catalog.mz_objects (
    id text NOT NULL,
    oid oid NOT NULL,
    schema_id text NOT NULL,
    name text NOT NULL,
    type text NOT NULL,
    owner_id text NOT NULL,
    cluster_id text,
    privileges mz_aclitem[]
);
