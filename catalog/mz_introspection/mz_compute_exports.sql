-- What each dataflow maintains. On the replica that `SET cluster_replica` names, or the only one of the session's cluster.
--
-- export_id: the index or materialized view, a key of `mz_objects`
-- dataflow_id: the dataflow, a key of `mz_dataflows`
CREATE VIEW mz_introspection.mz_compute_exports AS
SELECT export_id, id AS dataflow_id
FROM mz_internal.mz_compute_dataflows_unified
WHERE replica_id = mz_internal.mz_introspected_replica();
