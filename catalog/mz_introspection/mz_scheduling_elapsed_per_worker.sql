-- For how long the replica was at each operator, worker by worker: what the workers of a process do together counts for each in equal
-- parts. On the replica that `SET cluster_replica` names, or the only one of the session's cluster.
--
-- id: the operator, a key of `mz_dataflow_operators`
-- worker_id: the worker, counted from 0
-- elapsed_ns: nanoseconds
CREATE VIEW mz_introspection.mz_scheduling_elapsed_per_worker AS
SELECT o.id, w.worker_id, o.elapsed_ns / count(*) OVER (PARTITION BY o.id) AS elapsed_ns
FROM mz_introspection.mz_scheduling_elapsed AS o
CROSS JOIN mz_internal.mz_compute_workers_unified AS w
WHERE w.replica_id = mz_internal.mz_introspected_replica();
