-- Why each materialized view and index that is not hydrated is not: one row for each replica that has its dataflow, or one row where none
-- has. Whatever state replicas are in, what is not hydrated is here.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- replica_id: the replica, a key of `mz_cluster_replicas`; NULL where no replica has the dataflow
-- reason: what it does or waits for, or why nobody does it
-- plan_node_id: the node that it is at, as in `EXPLAIN PHYSICAL PLAN WITH (node_ids)`; NULL where it is at none
-- nodes_hydrated: how many nodes of its plan are hydrated, on all workers
-- nodes: how many nodes its plan has; NULL where it was not begun
-- workers_hydrated: how many workers have done their share of the node that it is at
-- error: what it failed with last; NULL where it does not fail
-- reported_at: when the replica has told of it last
CREATE VIEW mz_internal.mz_unhydrated_objects AS
WITH
    wanted (id, cluster_id) AS (
        SELECT id, cluster_id FROM mz_catalog.mz_materialized_views
        UNION ALL
        SELECT id, cluster_id FROM mz_catalog.mz_indexes
    ),
    nodes (object_id, replica_id, plan_node_id, hydrated, workers_hydrated) AS (
        SELECT object_id, replica_id, plan_node_id, bool_and(hydrated), count(*) FILTER (WHERE hydrated)
        FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker
        GROUP BY object_id, replica_id, plan_node_id
    ),
    objects (object_id, replica_id, hydrated, nodes_hydrated, nodes) AS (
        SELECT object_id, replica_id, bool_and(hydrated), count(*) FILTER (WHERE hydrated), count(*)
        FROM nodes
        GROUP BY object_id, replica_id
    ),
    known (object_id, replica_id) AS (
        SELECT object_id, replica_id FROM objects
        UNION
        SELECT object_id, replica_id FROM mz_internal.mz_compute_dataflow_statuses
    )
SELECT
    w.id AS object_id,
    CASE WHEN k.replica_id <> '' THEN k.replica_id END AS replica_id,
    CASE
        WHEN r.replicas IS NULL THEN 'its cluster has no replica'
        WHEN coalesce(s.status = 'offline', r.online = 0)
            THEN 'no process runs its replica: ' || coalesce(s.reason, r.reason, 'unknown')
        WHEN d.status = 'refused' THEN 'it cannot be run: ' || coalesce(d.error, 'unknown')
        WHEN d.status IS NULL AND o.nodes IS NULL THEN 'waits to be taken up by the process that leads'
        WHEN d.status = 'failed' THEN 'it fails: ' || coalesce(d.error, 'unknown') || '; it ' || coalesce(d.reason, 'is tried again')
        ELSE coalesce(d.reason, 'begins')
    END AS reason,
    d.plan_node_id,
    o.nodes_hydrated,
    o.nodes,
    n.workers_hydrated,
    d.error,
    d.reported_at
FROM wanted AS w
LEFT JOIN known AS k ON k.object_id = w.id
LEFT JOIN objects AS o ON o.object_id = k.object_id AND o.replica_id = k.replica_id
LEFT JOIN mz_internal.mz_compute_dataflow_statuses AS d ON d.object_id = k.object_id AND d.replica_id = k.replica_id
LEFT JOIN nodes AS n
    ON n.object_id = d.object_id AND n.replica_id = d.replica_id AND n.plan_node_id = d.plan_node_id
LEFT JOIN mz_internal.mz_cluster_replica_statuses AS s ON s.replica_id = k.replica_id AND s.process_id = 0
LEFT JOIN (
    SELECT
        c.cluster_id,
        count(*) AS replicas,
        count(*) FILTER (WHERE p.status = 'online') AS online,
        max(p.reason) AS reason
    FROM mz_catalog.mz_cluster_replicas AS c
    LEFT JOIN mz_internal.mz_cluster_replica_statuses AS p ON p.replica_id = c.id AND p.process_id = 0
    GROUP BY c.cluster_id
) AS r ON r.cluster_id = w.cluster_id
WHERE NOT coalesce(o.hydrated, d.hydrated, false);
