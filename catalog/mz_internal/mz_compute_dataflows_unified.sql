-- The dataflows of each replica.
--
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- id: the dataflow, the same number on each replica
-- name: its name
-- export_id: the index or materialized view that it maintains, a key of `mz_objects`
CREATE SOURCE mz_internal.mz_compute_dataflows_unified (
    replica_id text NOT NULL,
    id uint8 NOT NULL,
    name text NOT NULL,
    export_id text NOT NULL
);
