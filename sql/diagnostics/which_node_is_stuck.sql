-- Which node of which dataflow has not yet processed the data that was there when the dataflow began?
-- The node's id is the one that EXPLAIN PHYSICAL PLAN WITH (node_ids) FOR MATERIALIZED VIEW ... prints. Nodes with smaller ids come
-- first in a plan, so the smallest one here is where the dataflow is.
SELECT
    o.name AS object,
    h.replica_id,
    h.plan_node_id,
    sum(CASE WHEN h.hydrated THEN 1 ELSE 0 END) AS workers_hydrated,
    count(*) AS workers
FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker AS h
JOIN mz_catalog.mz_objects AS o ON o.id = h.object_id
GROUP BY o.name, h.replica_id, h.plan_node_id
HAVING sum(CASE WHEN h.hydrated THEN 1 ELSE 0 END) < count(*)
ORDER BY object, replica_id, plan_node_id;
