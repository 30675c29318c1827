-- For how long each replica was at each node of a dataflow since it has run it, with what is under way; fed by an introspection subscribe, as
-- `mz_compute_frontiers_unified`. A hydration has a statement for each arrangement and one for the export; a step is one statement for the
-- whole plan, and counts for its root.
--
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- export_id: the index or materialized view, a key of `mz_objects`
-- lir_id: the node, as in `EXPLAIN PHYSICAL PLAN WITH (node_ids)`
-- elapsed_ns: nanoseconds
-- statements: how many statements were begun for it
-- rows_out: how many updates of the export came out of steps
CREATE SOURCE mz_internal.mz_compute_elapsed_unified (
    replica_id text NOT NULL,
    export_id text NOT NULL,
    lir_id uint8 NOT NULL,
    elapsed_ns uint8 NOT NULL,
    statements uint8 NOT NULL,
    rows_out bigint NOT NULL
);
