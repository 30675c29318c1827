-- How many of each dataflow's nodes have processed the data that was there when the dataflow began?
SELECT
    o.name AS object,
    h.replica_id,
    sum(CASE WHEN h.hydrated THEN 1 ELSE 0 END) AS nodes_hydrated,
    count(*) AS nodes
FROM mz_internal.mz_compute_operator_hydration_statuses AS h
JOIN mz_catalog.mz_objects AS o ON o.id = h.object_id
GROUP BY o.name, h.replica_id
ORDER BY object, replica_id;
