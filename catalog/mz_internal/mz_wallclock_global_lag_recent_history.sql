-- What `mz_wallclock_global_lag_history` has of the last 24 hours.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- lag: how far it was behind on the replica that was behind least; NULL where nothing of it was complete on any
-- occurred_at: the minute
CREATE VIEW mz_internal.mz_wallclock_global_lag_recent_history AS
SELECT object_id, lag, occurred_at
FROM mz_internal.mz_wallclock_global_lag_history
WHERE occurred_at + INTERVAL '1 day' > now();
