-- When the dataflow of each object was last hydrated on each replica, by the clock of the process that leads. Restarts keep it; a dataflow
-- that is hydrated anew has a new row.
--
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- object_id: the index or materialized view, a key of `mz_objects`
-- time_ns: how long it took from `started_at` on, in nanoseconds; NULL until it is done
-- installed_at: when the replica was given the dataflow and found that it has to be hydrated
-- started_at: when it began to compute; NULL before that
-- hydrated_at: when its output had passed the time at which it began; NULL before that
-- queue_time: how long it waited before it began, for its turn and its inputs; NULL while it waits
CREATE SOURCE mz_internal.mz_compute_hydration_times (
    replica_id text NOT NULL,
    object_id text NOT NULL,
    time_ns uint8,
    installed_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    hydrated_at timestamp with time zone,
    queue_time interval
);
