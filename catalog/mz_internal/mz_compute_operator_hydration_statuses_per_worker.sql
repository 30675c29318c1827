-- How far the nodes of each dataflow's plan have come with the data that was there when the dataflow began, worker by worker.
-- A node that is hydrated stays so as long as the replica keeps what it has.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- plan_node_id: the node's id, as in `EXPLAIN PHYSICAL PLAN WITH (node_ids)`
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- worker_id: the worker: a slice of the keys, counted from 0
-- hydrated: whether the node has processed all input that there was when the dataflow began
CREATE SOURCE mz_internal.mz_compute_operator_hydration_statuses_per_worker (
    object_id text NOT NULL,
    plan_node_id uint8 NOT NULL,
    replica_id text NOT NULL,
    worker_id uint8 NOT NULL,
    hydrated boolean NOT NULL
);
