-- For how long the replica was at each operator, at a dataflow with all that is within it. On the replica that `SET cluster_replica`
-- names, or the only one of the session's cluster.
--
-- id: the operator, a key of `mz_dataflow_operators`
-- elapsed_ns: nanoseconds
CREATE VIEW mz_introspection.mz_scheduling_elapsed AS
SELECT u.id, sum(u.elapsed_ns) AS elapsed_ns
FROM (
    SELECT d.replica_id, unnest(ARRAY[d.id, d.id + 1::uint8 + e.lir_id]) AS id, e.elapsed_ns
    FROM mz_internal.mz_compute_elapsed_unified AS e
    JOIN mz_internal.mz_compute_dataflows_unified AS d ON d.replica_id = e.replica_id AND d.export_id = e.export_id
) AS u
WHERE u.replica_id = mz_internal.mz_introspected_replica()
GROUP BY u.id;
