-- How far each materialized view and index was behind the clock, on each replica, minute by minute: an entry for each minute in which it
-- was behind, and one when it was behind nothing for the first time since. The latest ten thousand or so are kept.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- lag: how far it was behind; NULL where nothing of it was complete
-- occurred_at: when that was, by the clock of the process that led
CREATE SOURCE mz_internal.mz_wallclock_lag_history (
    object_id text NOT NULL,
    replica_id text NOT NULL,
    lag interval,
    occurred_at timestamp with time zone NOT NULL
);
