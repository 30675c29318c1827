-- The dataflows. Worker by worker. On the replica that `SET cluster_replica` names, or the only one of the session's cluster.
--
-- id: the dataflow
-- worker_id: the worker, counted from 0
-- name: its name
CREATE VIEW mz_introspection.mz_dataflows_per_worker AS
SELECT u.id, w.worker_id, u.name
FROM mz_internal.mz_compute_dataflows_unified AS u
JOIN mz_internal.mz_compute_workers_unified AS w ON w.replica_id = u.replica_id
WHERE u.replica_id = mz_internal.mz_introspected_replica();
