-- How far each export is complete. Worker by worker. On the replica that `SET cluster_replica` names, or the only one of the session's
-- cluster.
--
-- export_id: the index or materialized view, a key of `mz_objects`
-- worker_id: the worker, counted from 0
-- time: the first time that is not complete; NULL where all are
CREATE VIEW mz_introspection.mz_compute_frontiers_per_worker AS
SELECT o.export_id, w.worker_id, o.time
FROM mz_introspection.mz_compute_frontiers AS o
CROSS JOIN mz_internal.mz_compute_workers_unified AS w
WHERE w.replica_id = mz_internal.mz_introspected_replica();
