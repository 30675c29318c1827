-- Whether each worker of each node has processed what there was when the dataflow began. On the replica that `SET cluster_replica` names,
-- or the only one of the session's cluster.
--
-- export_id: the index or materialized view, a key of `mz_objects`
-- lir_id: the node, as in `EXPLAIN PHYSICAL PLAN WITH (node_ids)`
-- worker_id: the worker, counted from 0
-- hydrated: whether it has
CREATE VIEW mz_introspection.mz_compute_operator_hydration_statuses_per_worker AS
SELECT object_id AS export_id, plan_node_id AS lir_id, worker_id, hydrated
FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker
WHERE replica_id = mz_internal.mz_introspected_replica();
