-- The objects that EXPLAIN ANALYZE can be asked about. On the replica that `SET cluster_replica` names, or the only one of the session's
-- cluster.
--
-- name: the object's name
-- global_id: the object, a key of `mz_objects`
CREATE VIEW mz_introspection.mz_mappable_objects AS
SELECT n.name, d.export_id AS global_id
FROM mz_internal.mz_compute_dataflows_unified AS d
JOIN mz_catalog.mz_objects AS n ON n.id = d.export_id
WHERE d.replica_id = mz_internal.mz_introspected_replica();
