-- Whether each dataflow has caught up with the data that was there when it began, on each replica.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- hydrated: whether the dataflow's output has passed the time at which the dataflow began
-- hydration_time: how long the hydration took; NULL until it is done, and after a restart that found it done
CREATE SOURCE mz_internal.mz_compute_hydration_statuses (
    object_id text NOT NULL,
    replica_id text NOT NULL,
    hydrated boolean NOT NULL,
    hydration_time interval
);
