-- Whether each object has caught up with the data that was there when it began, on each replica.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- hydrated: whether the dataflow's output has passed the time at which the dataflow began
CREATE VIEW mz_internal.mz_hydration_statuses AS
SELECT object_id, replica_id, hydrated
FROM mz_internal.mz_compute_hydration_statuses;
