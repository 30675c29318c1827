-- For how long the replica was at each operator, worker by worker: what the workers of a process do together counts for each in equal
-- parts. On the replica that `SET cluster_replica` names, or the only one of the session's cluster.
--
-- id: the operator, a key of `mz_dataflow_operators`
-- worker_id: the worker, counted from 0
-- elapsed_ns: nanoseconds
CREATE VIEW mz_introspection.mz_scheduling_elapsed_per_worker AS
SELECT u.id, w.worker_id, sum(u.elapsed_ns::numeric / w.workers) AS elapsed_ns
FROM (
    SELECT d.replica_id, d.id + 1::uint8 + e.lir_id AS id, e.elapsed_ns
    FROM mz_internal.mz_compute_elapsed_unified AS e
    JOIN mz_internal.mz_compute_dataflows_unified AS d ON d.replica_id = e.replica_id AND d.export_id = e.export_id
    UNION ALL
    SELECT d.replica_id, d.id, e.elapsed_ns
    FROM mz_internal.mz_compute_elapsed_unified AS e
    JOIN mz_internal.mz_compute_dataflows_unified AS d ON d.replica_id = e.replica_id AND d.export_id = e.export_id
) AS u
JOIN (
    SELECT replica_id, worker_id, count(*) OVER (PARTITION BY replica_id) AS workers
    FROM mz_internal.mz_compute_workers_unified
) AS w ON w.replica_id = u.replica_id
WHERE u.replica_id = mz_internal.mz_introspected_replica()
GROUP BY u.id, w.worker_id, w.workers;
