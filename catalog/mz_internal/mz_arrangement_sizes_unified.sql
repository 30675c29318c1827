-- What the arrangements of each dataflow hold, worker by worker, as they are stored: some seconds behind what their replica has.
--
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- export_id: the index or materialized view, a key of `mz_objects`
-- lir_id: the node that keeps it, as in `EXPLAIN PHYSICAL PLAN WITH (node_ids)`
-- worker_id: the worker, counted from 0
-- records: how many updates are stored, before those that cancel each other are merged
-- batches: in how many batches
-- size: how many bytes they take
-- capacity: how many bytes are taken for them
-- allocations: how many pieces these are
CREATE SOURCE mz_internal.mz_arrangement_sizes_unified (
    replica_id text NOT NULL,
    export_id text NOT NULL,
    lir_id uint8 NOT NULL,
    worker_id uint8 NOT NULL,
    records bigint NOT NULL,
    batches bigint NOT NULL,
    size bigint NOT NULL,
    capacity bigint NOT NULL,
    allocations bigint NOT NULL
);
