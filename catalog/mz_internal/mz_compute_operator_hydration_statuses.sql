-- How far the nodes of each dataflow's plan have come with the data that was there when the dataflow began: a node is hydrated on a
-- replica once it is on all the replica's workers.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- plan_node_id: the node's id, as in `EXPLAIN PHYSICAL PLAN WITH (node_ids)`
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- hydrated: whether the node has processed all input that there was when the dataflow began
CREATE VIEW mz_internal.mz_compute_operator_hydration_statuses AS
SELECT object_id, plan_node_id, replica_id, bool_and(hydrated) AS hydrated
FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker
GROUP BY object_id, plan_node_id, replica_id;
