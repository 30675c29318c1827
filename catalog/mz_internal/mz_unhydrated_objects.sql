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
    -- What is told of a dataflow, each in a row of its own: they are put together by adding up, not by joins, which cost more.
    told (
        object_id, replica_id, nodes_hydrated, nodes, workers_hydrated,
        hydrated, status, plan_node_id, reason, error, reported_at
    ) AS (
        SELECT
            object_id, replica_id, count(*) FILTER (WHERE hydrated), count(*), NULL::bigint,
            NULL::integer, NULL::text, NULL::uint8, NULL::text, NULL::text, NULL::timestamp with time zone
        FROM nodes
        GROUP BY object_id, replica_id
        UNION ALL
        SELECT
            object_id, replica_id, NULL, NULL, NULL,
            hydrated::integer, status, plan_node_id, reason, error, reported_at
        FROM mz_internal.mz_compute_dataflow_statuses
        UNION ALL
        SELECT n.object_id, n.replica_id, NULL, NULL, n.workers_hydrated, NULL, NULL, NULL, NULL, NULL, NULL
        FROM nodes AS n
        JOIN mz_internal.mz_compute_dataflow_statuses AS d
            ON d.object_id = n.object_id AND d.replica_id = n.replica_id AND d.plan_node_id = n.plan_node_id
    ),
    known (
        object_id, replica_id, nodes_hydrated, nodes, workers_hydrated,
        hydrated, status, plan_node_id, reason, error, reported_at
    ) AS (
        SELECT
            object_id, replica_id, max(nodes_hydrated), max(nodes), max(workers_hydrated),
            max(hydrated), max(status), max(plan_node_id), max(reason), max(error), max(reported_at)
        FROM told
        GROUP BY object_id, replica_id
    ),
    replicas (replica_id, cluster_id, status, reason) AS (
        SELECT r.id, r.cluster_id, s.status, s.reason
        FROM mz_catalog.mz_cluster_replicas AS r
        JOIN mz_internal.mz_cluster_replica_statuses_raw AS s ON s.replica_id = r.id AND s.process_id = 0
    ),
    clusters (cluster_id, replicas, online, reason) AS (
        SELECT cluster_id, count(status), count(*) FILTER (WHERE status = 'online'), max(reason)
        FROM (
            SELECT cluster_id, status, reason FROM replicas
            UNION ALL
            SELECT id, NULL, NULL FROM mz_catalog.mz_clusters
        ) AS each
        GROUP BY cluster_id
    )
SELECT
    w.id AS object_id,
    CASE WHEN k.replica_id <> '' THEN k.replica_id END AS replica_id,
    CASE
        WHEN c.replicas = 0 THEN 'its cluster has no replica'
        WHEN coalesce(r.status = 'offline', c.online = 0)
            THEN 'its replica is offline: ' || coalesce(r.reason, c.reason, 'unknown')
        WHEN k.status = 'refused' THEN 'it cannot be run: ' || coalesce(k.error, 'unknown')
        WHEN k.status IS NULL AND k.nodes IS NULL THEN 'waits to be taken up by the process that leads'
        WHEN k.status = 'failed' THEN 'it fails: ' || coalesce(k.error, 'unknown') || '; it ' || coalesce(k.reason, 'is tried again')
        ELSE coalesce(k.reason, 'begins')
    END AS reason,
    k.plan_node_id,
    k.nodes_hydrated,
    k.nodes,
    k.workers_hydrated,
    k.error,
    k.reported_at
FROM wanted AS w
JOIN clusters AS c ON c.cluster_id = w.cluster_id
LEFT JOIN known AS k ON k.object_id = w.id
LEFT JOIN replicas AS r ON r.replica_id = k.replica_id
WHERE NOT coalesce(k.nodes_hydrated = k.nodes, k.hydrated = 1, false);
