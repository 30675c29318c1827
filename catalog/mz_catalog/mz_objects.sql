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
CREATE VIEW mz_catalog.mz_objects AS
SELECT id, oid, schema_id, name, type, owner_id, cluster_id, privileges FROM mz_catalog.mz_relations
UNION ALL
SELECT i.id, i.oid, r.schema_id, i.name, 'index' AS type, i.owner_id, i.cluster_id, NULL::text[] AS privileges
FROM mz_catalog.mz_indexes AS i
JOIN mz_catalog.mz_relations AS r ON r.id = i.on_id
UNION ALL
SELECT id, oid, schema_id, name, 'type' AS type, owner_id, NULL::text AS cluster_id, privileges FROM mz_catalog.mz_types;
