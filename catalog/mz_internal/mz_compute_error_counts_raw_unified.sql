-- How many errors each dataflow's export holds now: while there are some, reading it fails with one of them.
--
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- object_id: the index or materialized view, a key of `mz_objects`
-- count: how many
CREATE SOURCE mz_internal.mz_compute_error_counts_raw_unified (
    replica_id text NOT NULL,
    object_id text NOT NULL,
    count bigint NOT NULL
);
