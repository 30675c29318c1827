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
    operator_id,
    sum(records)::bigint AS records,
    sum(batches)::bigint AS batches,
    sum(size)::bigint AS size,
    sum(capacity)::bigint AS capacity,
    sum(allocations)::bigint AS allocations
FROM mz_introspection.mz_arrangement_sizes_per_worker
GROUP BY operator_id;
