-- How far what each dataflow reads is complete as its replica sees it; fed by an introspection subscribe, as `mz_compute_frontiers_unified`.
--
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- export_id: the index or materialized view, a key of `mz_objects`
-- import_id: what it reads, a key of `mz_objects`
-- time: the first time that is not complete; NULL where all are
CREATE SOURCE mz_internal.mz_compute_import_frontiers_unified (
    replica_id text NOT NULL,
    export_id text NOT NULL,
    import_id text NOT NULL,
    time mz_timestamp
);
