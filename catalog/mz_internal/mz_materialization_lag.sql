-- How far each index and materialized view is behind what it is made of: by the last times that are complete in each.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- local_lag: how far it is behind what its dataflow reads; NULL where nothing of it is complete yet
-- global_lag: how far it is behind the tables and sources that it is made of in the end; NULL likewise
-- slowest_local_input_id: of what its dataflow reads, that which is complete to the earliest time
-- slowest_global_input_id: of the tables and sources that it is made of, that which is complete to the earliest time
CREATE VIEW mz_internal.mz_materialization_lag AS
WITH
    frontiers (id, at) AS (
        SELECT object_id, coalesce(write_frontier::bigint, 9223372036854775807)
        FROM mz_internal.mz_frontiers
    ),
    local_inputs (object_id, input_id, at) AS (
        SELECT DISTINCT ON (d.object_id) d.object_id, d.dependency_id, f.at
        FROM mz_internal.mz_compute_dependencies AS d
        JOIN frontiers AS f ON f.id = d.dependency_id
        ORDER BY d.object_id, f.at, d.dependency_id
    ),
    global_inputs (object_id, input_id, at) AS (
        SELECT DISTINCT ON (r.object_id) r.object_id, r.input_id, f.at
        FROM mz_internal.mz_compute_roots AS r
        JOIN frontiers AS f ON f.id = r.input_id
        ORDER BY r.object_id, f.at, r.input_id
    )
SELECT
    l.object_id,
    CASE WHEN o.at > 0 THEN greatest(l.at - o.at, 0) * INTERVAL '1 millisecond' END AS local_lag,
    CASE WHEN o.at > 0 THEN greatest(g.at - o.at, 0) * INTERVAL '1 millisecond' END AS global_lag,
    l.input_id AS slowest_local_input_id,
    g.input_id AS slowest_global_input_id
FROM local_inputs AS l
JOIN frontiers AS o ON o.id = l.object_id
LEFT JOIN global_inputs AS g ON g.object_id = l.object_id;
