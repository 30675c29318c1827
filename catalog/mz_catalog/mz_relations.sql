-- What can stand in FROM: tables, sources, views and materialized views.
--
-- id: the relation's id, the key of this relation
-- oid: the number by which PostgreSQL's tools know it
-- schema_id: the schema it is in, a key of `mz_schemas`
-- name: the relation's name within its schema
-- type: `table`, `source`, `view` or `materialized-view`
-- owner_id: the role that owns it, a key of `mz_roles`
-- cluster_id: the cluster that maintains it; NULL where none does
-- privileges: who was granted what on it
CREATE VIEW mz_catalog.mz_relations AS
SELECT id, oid, schema_id, name, 'table' AS type, owner_id, NULL::text AS cluster_id, privileges FROM mz_catalog.mz_tables
UNION ALL
SELECT id, oid, schema_id, name, 'source' AS type, owner_id, NULL::text AS cluster_id, privileges FROM mz_catalog.mz_sources
UNION ALL
SELECT id, oid, schema_id, name, 'view' AS type, owner_id, NULL::text AS cluster_id, privileges FROM mz_catalog.mz_views
UNION ALL
SELECT id, oid, schema_id, name, 'materialized-view' AS type, owner_id, cluster_id, privileges FROM mz_catalog.mz_materialized_views;
