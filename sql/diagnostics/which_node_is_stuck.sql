-- Why is each view and index that is not hydrated not hydrated, and at which node is it?
-- How to read it: `reason` says what it does or waits for, an error with when it is tried again, or why nobody works at it. `plan_node_id` is
-- the id that EXPLAIN PHYSICAL PLAN WITH (node_ids) FOR MATERIALIZED VIEW ... prints; of that node `workers_hydrated` have done their share.
-- A `reported_at` that is more than a few seconds old while it computes means that its replica is silent. No rows: all is hydrated.
SELECT
    o.name AS object,
    u.replica_id,
    u.reason,
    u.plan_node_id,
    u.workers_hydrated,
    u.nodes_hydrated,
    u.nodes,
    u.reported_at
FROM mz_internal.mz_unhydrated_objects AS u
JOIN mz_catalog.mz_objects AS o ON o.id = u.object_id
ORDER BY object, replica_id;
