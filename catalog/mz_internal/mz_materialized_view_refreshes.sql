-- The last and the next refresh of each materialized view.
--
-- materialized_view_id: the view, a key of `mz_materialized_views`
-- last_completed_refresh: the time of the last refresh that is done; NULL before the first one
-- next_refresh: the time of the next one; NULL where there is none any more
CREATE SOURCE mz_internal.mz_materialized_view_refreshes (
    materialized_view_id text NOT NULL,
    last_completed_refresh mz_timestamp,
    next_refresh mz_timestamp
);
