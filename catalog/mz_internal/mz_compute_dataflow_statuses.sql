-- How the dataflow of each object stands on each replica, as the replica has told last: what it does or waits for while it is not hydrated,
-- and what it fails with. Of a replica that no process runs any more it is what was so at its end (`mz_cluster_replica_statuses`).
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- replica_id: the replica, a key of `mz_cluster_replicas`; empty where the dataflow could not be given to one
-- status: `waiting` (to be opened), `hydrating`, `running`, `failed` (it is tried again, after pauses that grow) or `refused` (it cannot run)
-- hydrated: whether its output has passed the time at which it began
-- plan_node_id: the node that it is at while it hydrates, as in `EXPLAIN PHYSICAL PLAN WITH (node_ids)`; NULL otherwise
-- reason: while it is not hydrated, or fails: what it does or waits for; NULL otherwise
-- error: what it failed with last; NULL where it does not fail
-- failures: how often it has failed since it was well
-- reported_at: when that was told; at least once a second while it computes
CREATE SOURCE mz_internal.mz_compute_dataflow_statuses (
    object_id text NOT NULL,
    replica_id text NOT NULL,
    status text NOT NULL,
    hydrated boolean NOT NULL,
    plan_node_id uint8,
    reason text,
    error text,
    failures uint8 NOT NULL,
    reported_at timestamp with time zone NOT NULL
);
