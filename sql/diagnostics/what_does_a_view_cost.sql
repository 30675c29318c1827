-- What does each dataflow keep, node by node?
-- How to read it: the most expensive first; `plan_node_id` is the id that EXPLAIN PHYSICAL PLAN WITH (node_ids) prints. A shard that two
-- dataflows share stands under both, so add up each `shard_id` once. A view without rows here keeps nothing but its own contents.
SELECT
    o.name AS object,
    a.replica_id,
    a.plan_node_id,
    a.shard_id,
    a.rows,
    a.bytes
FROM mz_internal.mz_arrangements AS a
JOIN mz_catalog.mz_objects AS o ON o.id = a.object_id
ORDER BY bytes DESC, object, plan_node_id;
