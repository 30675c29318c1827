-- The dataflow of each operator. Worker by worker. On the replica that `SET cluster_replica` names, or the only one of the session's
-- cluster.
--
-- id: the operator
-- name: its name: of a dataflow its own, of a node its line in EXPLAIN PHYSICAL PLAN
-- worker_id: the worker, counted from 0
-- dataflow_id: the dataflow, a key of `mz_dataflows`
-- dataflow_name: its name
CREATE VIEW mz_introspection.mz_dataflow_operator_dataflows_per_worker AS
SELECT o.id, o.name, w.worker_id, o.dataflow_id, o.dataflow_name
FROM mz_introspection.mz_dataflow_operator_dataflows AS o
CROSS JOIN mz_internal.mz_compute_workers_unified AS w
WHERE w.replica_id = mz_internal.mz_introspected_replica();
