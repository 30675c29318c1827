-- What each arrangement holds. On the replica that `SET cluster_replica` names, or the only one of the session's cluster.
--
-- operator_id: the operator that keeps it, a key of `mz_dataflow_operators`
-- records: how many updates are stored
-- batches: in how many batches
-- size: how many bytes they take
-- capacity: how many bytes are taken for them
-- allocations: how many pieces these are
CREATE VIEW mz_introspection.mz_arrangement_sizes AS
SELECT
    d.id + 1::uint8 + a.lir_id AS operator_id,
    sum(a.records)::bigint AS records,
    sum(a.batches)::bigint AS batches,
    sum(a.size)::bigint AS size,
    sum(a.capacity)::bigint AS capacity,
    sum(a.allocations)::bigint AS allocations
FROM mz_internal.mz_arrangement_sizes_unified AS a
JOIN mz_internal.mz_compute_dataflows_unified AS d ON d.replica_id = a.replica_id AND d.export_id = a.export_id
WHERE a.replica_id = mz_internal.mz_introspected_replica()
GROUP BY d.id + 1::uint8 + a.lir_id;
