-- The nodes of each dataflow's plan, and the operators that each is. On the replica that `SET cluster_replica` names, or the only one of
-- the session's cluster.
--
-- global_id: the index or materialized view, a key of `mz_objects`
-- lir_id: the node, as in `EXPLAIN PHYSICAL PLAN WITH (node_ids)`
-- operator: its line in EXPLAIN PHYSICAL PLAN
-- parent_lir_id: the node whose input it is; NULL for the root
-- nesting: how far EXPLAIN indents it
-- operator_id_start: its first operator, a key of `mz_dataflow_operators`
-- operator_id_end: the first operator after those
CREATE VIEW mz_introspection.mz_lir_mapping AS
SELECT global_id, lir_id, operator, parent_lir_id, nesting, operator_id_start, operator_id_end
FROM mz_internal.mz_compute_lir_mapping_unified
WHERE replica_id = mz_internal.mz_introspected_replica();
