-- How long the hydration of each dataflow took; workers of a replica begin and end together. On the replica that `SET cluster_replica`
-- names, or the only one of the session's cluster.
--
-- export_id: the index or materialized view, a key of `mz_objects`
-- worker_id: the worker, counted from 0
-- time_ns: nanoseconds; NULL until it is done
CREATE VIEW mz_introspection.mz_compute_hydration_times_per_worker AS
SELECT u.object_id AS export_id, w.worker_id, u.time_ns
FROM mz_internal.mz_compute_hydration_times AS u
JOIN mz_internal.mz_compute_workers_unified AS w ON w.replica_id = u.replica_id
WHERE u.replica_id = mz_internal.mz_introspected_replica();
