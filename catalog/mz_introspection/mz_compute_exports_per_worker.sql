-- What each dataflow maintains. Worker by worker. On the replica that `SET cluster_replica` names, or the only one of the session's
-- cluster.
--
-- export_id: the index or materialized view, a key of `mz_objects`
-- worker_id: the worker, counted from 0
-- dataflow_id: the dataflow, a key of `mz_dataflows`
CREATE VIEW mz_introspection.mz_compute_exports_per_worker AS
SELECT u.export_id, w.worker_id, id AS dataflow_id
FROM mz_internal.mz_compute_dataflows_unified AS u
JOIN mz_internal.mz_compute_workers_unified AS w ON w.replica_id = u.replica_id
WHERE u.replica_id = mz_internal.mz_introspected_replica();
