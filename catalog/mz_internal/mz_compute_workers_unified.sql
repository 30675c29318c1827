-- The workers of each replica: each has a slice of the keys of every arrangement.
--
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- worker_id: the worker, counted from 0
CREATE SOURCE mz_internal.mz_compute_workers_unified (
    replica_id text NOT NULL,
    worker_id uint8 NOT NULL
);
