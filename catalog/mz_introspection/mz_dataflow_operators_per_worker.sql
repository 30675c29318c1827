-- The operators of each dataflow: itself, and the nodes of its plan. Worker by worker. On the replica that `SET cluster_replica` names,
-- or the only one of the session's cluster.
--
-- id: the operator
-- worker_id: the worker, counted from 0
-- name: its name: of a dataflow its own, of a node its line in EXPLAIN PHYSICAL PLAN
CREATE VIEW mz_introspection.mz_dataflow_operators_per_worker AS
SELECT o.id, w.worker_id, o.name
FROM mz_introspection.mz_dataflow_operators AS o
CROSS JOIN mz_internal.mz_compute_workers_unified AS w
WHERE w.replica_id = mz_internal.mz_introspected_replica();
