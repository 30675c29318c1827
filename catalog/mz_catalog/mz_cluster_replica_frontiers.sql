-- How far each replica has brought the object of each of its dataflows.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- write_frontier: the first time that is not complete there; NULL where all are
CREATE VIEW mz_catalog.mz_cluster_replica_frontiers AS
SELECT export_id AS object_id, replica_id, time AS write_frontier
FROM mz_internal.mz_compute_frontiers_unified;
