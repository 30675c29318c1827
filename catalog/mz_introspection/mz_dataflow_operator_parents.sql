-- Which operator each operator is within. On the replica that `SET cluster_replica` names, or the only one of the session's cluster.
--
-- id: the operator
-- parent_id: the one that it is within
CREATE VIEW mz_introspection.mz_dataflow_operator_parents AS
SELECT id, dataflow_id AS parent_id
FROM (
    SELECT replica_id, id, name, id AS dataflow_id, name AS dataflow_name
    FROM mz_internal.mz_compute_dataflows_unified
    UNION ALL
    SELECT l.replica_id, l.operator_id_start, l.operator, d.id, d.name
    FROM mz_internal.mz_compute_lir_mapping_unified AS l
    JOIN mz_internal.mz_compute_dataflows_unified AS d ON d.replica_id = l.replica_id AND d.export_id = l.global_id
) AS o
WHERE id <> dataflow_id AND replica_id = mz_internal.mz_introspected_replica();
