-- What each worker of a node has put out until now, while a hydration is under way: from a statement's second second on, about once a second,
-- until the object is hydrated; fed by an introspection subscribe, as `mz_compute_frontiers_unified`.
--
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- export_id: the index or materialized view, a key of `mz_objects`
-- lir_id: the node, as in `EXPLAIN PHYSICAL PLAN WITH (node_ids)`
-- worker_id: the worker: a slice of the keys, counted from 0; NULL for rows that are of no worker, as those of a materialized view
-- rows: how many rows; NULL where Spark writes them, which tells of bytes alone
-- bytes: how many bytes: in files that Spark writes, in memory otherwise
CREATE SOURCE mz_internal.mz_compute_hydration_progress_unified (
    replica_id text NOT NULL,
    export_id text NOT NULL,
    lir_id uint8 NOT NULL,
    worker_id uint8,
    rows bigint,
    bytes bigint NOT NULL
);
