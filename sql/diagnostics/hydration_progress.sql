-- How many of each dataflow's nodes have processed the data that was there when the dataflow began?
-- How to read it: where `nodes_hydrated` is less than `nodes`, the dataflow hydrates; a number that stands still is one to ask
-- which_node_is_stuck.sql about. What no replica has begun is not here.
SELECT
    o.name AS object,
    h.replica_id,
    sum(CASE WHEN h.hydrated THEN 1 ELSE 0 END) AS nodes_hydrated,
    count(*) AS nodes
FROM mz_internal.mz_compute_operator_hydration_statuses AS h
JOIN mz_catalog.mz_objects AS o ON o.id = h.object_id
GROUP BY o.name, h.replica_id
ORDER BY object, replica_id;
