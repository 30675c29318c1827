-- How far each index and materialized view is behind what it is made of: by the last times that are complete in each.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- local_lag: how far it is behind what its dataflow reads; NULL where nothing of it is complete yet
-- global_lag: how far it is behind the tables and sources that it is made of in the end; NULL likewise
-- slowest_local_input_id: of what its dataflow reads, that which is complete to the earliest time
-- slowest_global_input_id: of the tables and sources that it is made of, that which is complete to the earliest time
CREATE VIEW mz_internal.mz_materialization_lag AS
WITH
    local_inputs (object_id, input_id, at) AS (
        SELECT DISTINCT ON (d.object_id) d.object_id, d.dependency_id, f.write_frontier
        FROM mz_internal.mz_compute_dependencies AS d
        JOIN mz_internal.mz_frontiers AS f ON f.object_id = d.dependency_id
        ORDER BY d.object_id, f.write_frontier NULLS LAST, d.dependency_id
    ),
    global_inputs (object_id, input_id, at) AS (
        SELECT DISTINCT ON (r.object_id) r.object_id, r.input_id, f.write_frontier
        FROM mz_internal.mz_compute_roots AS r
        JOIN mz_internal.mz_frontiers AS f ON f.object_id = r.input_id
        ORDER BY r.object_id, f.write_frontier NULLS LAST, r.input_id
    ),
    -- What is sealed is complete to the end of time.
    times (object_id, local_input_id, global_input_id, at, local_at, global_at) AS (
        SELECT
            l.object_id, l.input_id, g.input_id,
            coalesce(o.write_frontier::bigint, 9223372036854775807),
            coalesce(l.at::bigint, 9223372036854775807),
            CASE WHEN g.object_id IS NOT NULL THEN coalesce(g.at::bigint, 9223372036854775807) END
        FROM local_inputs AS l
        JOIN mz_internal.mz_frontiers AS o ON o.object_id = l.object_id
        LEFT JOIN global_inputs AS g ON g.object_id = l.object_id
    )
SELECT
    object_id,
    CASE WHEN at > 0 THEN greatest(local_at - at, 0) * INTERVAL '1 millisecond' END AS local_lag,
    CASE WHEN at > 0 THEN greatest(global_at - at, 0) * INTERVAL '1 millisecond' END AS global_lag,
    local_input_id AS slowest_local_input_id,
    global_input_id AS slowest_global_input_id
FROM times;
