-- Whether each dataflow has caught up with the data that was there when it began, on each replica: it has once all its nodes have, the
-- last of which is said to have when the dataflow's output has passed that time. Where nothing is told of nodes it is what the dataflow
-- says of itself.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- hydrated: whether the dataflow's output has passed the time at which the dataflow began
-- hydration_time: how long the hydration took from when it began to compute; NULL until it is done
CREATE VIEW mz_internal.mz_compute_hydration_statuses AS
SELECT
    object_id,
    replica_id,
    hydrated = 1 AS hydrated,
    CASE WHEN hydrated = 1 THEN (time_ns::double precision / 1000000000) * INTERVAL '1 second' END AS hydration_time
FROM (
    SELECT object_id, replica_id, coalesce(max(of_nodes), max(of_dataflow)) AS hydrated, max(time_ns) AS time_ns
    FROM (
        SELECT object_id, replica_id, bool_and(hydrated)::integer AS of_nodes, NULL::integer AS of_dataflow, NULL::uint8 AS time_ns
        FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker
        GROUP BY object_id, replica_id
        UNION ALL
        SELECT object_id, replica_id, NULL, hydrated::integer, NULL
        FROM mz_internal.mz_compute_dataflow_statuses
        WHERE replica_id <> ''
        UNION ALL
        SELECT object_id, replica_id, NULL, NULL, time_ns
        FROM mz_internal.mz_compute_hydration_times
    ) AS told
    GROUP BY object_id, replica_id
) AS known
WHERE hydrated IS NOT NULL;
