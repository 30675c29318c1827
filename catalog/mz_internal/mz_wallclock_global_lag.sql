-- How far each table, materialized view and index is behind the clock: how long ago the time is that it is not complete at, where something
-- was committed since. Time passes here when something is written: what is complete to the last commit is behind nothing.
--
-- object_id: the object, a key of `mz_objects`
-- lag: how far it is behind; NULL where nothing of it is complete yet
CREATE VIEW mz_internal.mz_wallclock_global_lag AS
SELECT
    f.object_id,
    CASE
        WHEN f.write_frontier IS NULL OR f.write_frontier >= c.committed THEN INTERVAL '0'
        WHEN f.write_frontier::text <> '0'
            THEN greatest(now() - to_timestamp(f.write_frontier::text::double precision / 1000), INTERVAL '0')
    END AS lag
FROM mz_internal.mz_frontiers AS f
CROSS JOIN (
    SELECT max(t.write_frontier) AS committed
    FROM mz_internal.mz_frontiers AS t
    WHERE t.object_id IN (SELECT id FROM mz_catalog.mz_tables)
) AS c;
