-- How far the dataflow of each object is complete on each replica, as the replica has told last; fed by an introspection subscribe. The rows
-- of a replica that hangs stay, those of one that is gone for 10 seconds, or was dropped, go.
--
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- export_id: the index or materialized view, a key of `mz_objects`
-- time: the first time that is not complete; NULL where all are
CREATE SOURCE mz_internal.mz_compute_frontiers_unified (
    replica_id text NOT NULL,
    export_id text NOT NULL,
    time mz_timestamp
);
