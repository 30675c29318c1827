-- Whether each node has processed what there was when the dataflow began, on all workers. On the replica that `SET cluster_replica` names,
-- or the only one of the session's cluster.
--
-- export_id: the index or materialized view, a key of `mz_objects`
-- lir_id: the node, as in `EXPLAIN PHYSICAL PLAN WITH (node_ids)`
-- hydrated: whether it has
CREATE VIEW mz_introspection.mz_compute_operator_hydration_statuses AS
SELECT export_id, lir_id, bool_and(hydrated) AS hydrated
FROM mz_introspection.mz_compute_operator_hydration_statuses_per_worker
GROUP BY export_id, lir_id;
