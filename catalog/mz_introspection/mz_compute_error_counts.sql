-- How many errors each export holds; those without errors are not here. On the replica that `SET cluster_replica` names, or the only one
-- of the session's cluster.
--
-- export_id: the index or materialized view, a key of `mz_objects`
-- count: how many
CREATE VIEW mz_introspection.mz_compute_error_counts AS
SELECT object_id AS export_id, sum(count) AS count
FROM mz_internal.mz_compute_error_counts_raw_unified
WHERE replica_id = mz_internal.mz_introspected_replica()
GROUP BY object_id
HAVING sum(count) <> 0;
