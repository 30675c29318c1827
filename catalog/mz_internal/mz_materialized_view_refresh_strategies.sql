-- When materialized views are refreshed: with the commits that change them, or at times of their own, one row for each REFRESH option.
--
-- materialized_view_id: the view, a key of `mz_materialized_views`
-- type: `on-commit`, `at` or `every`
-- interval: of `every`: how far its refreshes are apart
-- aligned_to: of `every`: one of its refreshes, by which all others are known
-- at: of `at`: the time of the refresh
CREATE SOURCE mz_internal.mz_materialized_view_refresh_strategies (
    materialized_view_id text NOT NULL,
    type text NOT NULL,
    "interval" interval,
    aligned_to timestamp with time zone,
    at timestamp with time zone
);
