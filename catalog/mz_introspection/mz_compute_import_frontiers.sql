-- How far what each dataflow reads is complete. On the replica that `SET cluster_replica` names, or the only one of the session's
-- cluster.
--
-- export_id: the index or materialized view, a key of `mz_objects`
-- import_id: what it reads, a key of `mz_objects`
-- time: the first time that is not complete; NULL where all are
CREATE VIEW mz_introspection.mz_compute_import_frontiers AS
SELECT export_id, import_id, time
FROM mz_internal.mz_compute_import_frontiers_unified
WHERE replica_id = mz_internal.mz_introspected_replica();
