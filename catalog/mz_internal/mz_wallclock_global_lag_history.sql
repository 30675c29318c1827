-- How far each materialized view and index was behind the clock where it was least so, minute by minute (`mz_wallclock_lag_history`).
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- lag: how far it was behind on the replica that was behind least; NULL where nothing of it was complete on any
-- occurred_at: the minute
CREATE VIEW mz_internal.mz_wallclock_global_lag_history AS
SELECT object_id, min(lag) AS lag, date_trunc('minute', occurred_at) AS occurred_at
FROM mz_internal.mz_wallclock_lag_history
GROUP BY object_id, date_trunc('minute', occurred_at);
