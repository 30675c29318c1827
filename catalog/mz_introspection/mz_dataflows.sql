-- The dataflows. On the replica that `SET cluster_replica` names, or the only one of the session's cluster.
--
-- id: the dataflow
-- name: its name
CREATE VIEW mz_introspection.mz_dataflows AS
SELECT id, name
FROM mz_internal.mz_compute_dataflows_unified
WHERE replica_id = mz_internal.mz_introspected_replica();
