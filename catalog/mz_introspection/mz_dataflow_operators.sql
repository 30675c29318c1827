-- The operators of each dataflow: itself, and the nodes of its plan. On the replica that `SET cluster_replica` names, or the only one of
-- the session's cluster.
--
-- id: the operator
-- name: its name: of a dataflow its own, of a node its line in EXPLAIN PHYSICAL PLAN
CREATE VIEW mz_introspection.mz_dataflow_operators AS
SELECT id, name
FROM (
    SELECT replica_id, id, name, id AS dataflow_id, name AS dataflow_name
    FROM mz_internal.mz_compute_dataflows_unified
    UNION ALL
    SELECT l.replica_id, l.operator_id_start, l.operator, d.id, d.name
    FROM mz_internal.mz_compute_lir_mapping_unified AS l
    JOIN mz_internal.mz_compute_dataflows_unified AS d ON d.replica_id = l.replica_id AND d.export_id = l.global_id
) AS o
WHERE replica_id = mz_internal.mz_introspected_replica();
