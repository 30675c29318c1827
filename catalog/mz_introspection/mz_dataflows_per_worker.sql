-- The dataflows. Worker by worker. On the replica that `SET cluster_replica` names, or the only one of the session's cluster.
--
-- id: the dataflow
-- worker_id: the worker, counted from 0
-- name: its name
CREATE VIEW mz_introspection.mz_dataflows_per_worker AS
SELECT o.id, w.worker_id, o.name
FROM mz_introspection.mz_dataflows AS o
CROSS JOIN mz_internal.mz_compute_workers_unified AS w
WHERE w.replica_id = mz_internal.mz_introspected_replica();
