-- The nodes of the plan of each dataflow, on each replica that has it, and the operators that each node is.
--
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- global_id: the index or materialized view, a key of `mz_objects`
-- lir_id: the node, as in `EXPLAIN PHYSICAL PLAN WITH (node_ids)`
-- operator: its line in EXPLAIN PHYSICAL PLAN
-- parent_lir_id: the node whose input it is; NULL for the root
-- nesting: how far EXPLAIN indents it
-- operator_id_start: its first operator
-- operator_id_end: the first operator after those
CREATE SOURCE mz_internal.mz_compute_lir_mapping_unified (
    replica_id text NOT NULL,
    global_id text NOT NULL,
    lir_id uint8 NOT NULL,
    operator text NOT NULL,
    parent_lir_id uint8,
    nesting uint2 NOT NULL,
    operator_id_start uint8 NOT NULL,
    operator_id_end uint8 NOT NULL
);
