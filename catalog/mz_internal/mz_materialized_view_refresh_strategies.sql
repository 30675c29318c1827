-- When materialized views are refreshed: always with the commits that change them.
--
-- materialized_view_id: the view, a key of `mz_materialized_views`
-- type: `on-commit`
-- interval: NULL
-- aligned_to: NULL
-- at: NULL
CREATE VIEW mz_internal.mz_materialized_view_refresh_strategies AS
SELECT
    id AS materialized_view_id,
    'on-commit' AS type,
    NULL::interval AS "interval",
    NULL::timestamptz AS aligned_to,
    NULL::timestamptz AS at
FROM mz_catalog.mz_materialized_views;
