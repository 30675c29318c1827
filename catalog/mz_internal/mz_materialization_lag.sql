-- How far each index and materialized view is behind what it is made of: by the last times that are complete in each.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- local_lag: how far it is behind what its dataflow reads; NULL where nothing of it is complete yet
-- global_lag: how far it is behind the tables and sources that it is made of in the end; NULL likewise
-- slowest_local_input_id: of what its dataflow reads, that which is complete to the earliest time
-- slowest_global_input_id: of the tables and sources that it is made of, that which is complete to the earliest time
CREATE VIEW mz_internal.mz_materialization_lag AS
WITH MUTUALLY RECURSIVE
    frontiers (id text, at numeric) AS (
        SELECT object_id, coalesce(write_frontier::text::numeric, 18446744073709551615)
        FROM mz_internal.mz_frontiers
    ),
    dependencies (object_id text, dependency_id text) AS (
        SELECT object_id, dependency_id FROM mz_internal.mz_compute_dependencies
    ),
    reached (object_id text, input_id text) AS (
        SELECT object_id, dependency_id FROM dependencies
        UNION
        SELECT r.object_id, d.dependency_id
        FROM reached AS r
        JOIN dependencies AS d ON d.object_id = r.input_id
    ),
    roots (object_id text, input_id text) AS (
        SELECT r.object_id, r.input_id
        FROM reached AS r
        WHERE r.input_id NOT IN (SELECT object_id FROM dependencies)
    ),
    local_inputs (object_id text, input_id text, at numeric) AS (
        SELECT DISTINCT ON (d.object_id) d.object_id, d.dependency_id, f.at
        FROM dependencies AS d
        JOIN frontiers AS f ON f.id = d.dependency_id
        ORDER BY d.object_id, f.at, d.dependency_id
    ),
    global_inputs (object_id text, input_id text, at numeric) AS (
        SELECT DISTINCT ON (r.object_id) r.object_id, r.input_id, f.at
        FROM roots AS r
        JOIN frontiers AS f ON f.id = r.input_id
        ORDER BY r.object_id, f.at, r.input_id
    )
SELECT
    l.object_id,
    CASE WHEN o.at > 0 THEN (greatest(l.at - o.at, 0)::double precision / 1000) * INTERVAL '1 second' END AS local_lag,
    CASE WHEN o.at > 0 THEN (greatest(g.at - o.at, 0)::double precision / 1000) * INTERVAL '1 second' END AS global_lag,
    l.input_id AS slowest_local_input_id,
    g.input_id AS slowest_global_input_id
FROM local_inputs AS l
JOIN frontiers AS o ON o.id = l.object_id
LEFT JOIN global_inputs AS g ON g.object_id = l.object_id;
