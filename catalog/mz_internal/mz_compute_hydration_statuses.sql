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
    h.object_id,
    h.replica_id,
    h.hydrated,
    CASE WHEN h.hydrated THEN (t.time_ns::double precision / 1000000000) * INTERVAL '1 second' END AS hydration_time
FROM (
    SELECT
        coalesce(n.object_id, d.object_id) AS object_id,
        coalesce(n.replica_id, d.replica_id) AS replica_id,
        coalesce(n.hydrated, d.hydrated) AS hydrated
    FROM (
        SELECT object_id, replica_id, bool_and(hydrated) AS hydrated
        FROM mz_internal.mz_compute_operator_hydration_statuses_per_worker
        GROUP BY object_id, replica_id
    ) AS n
    FULL JOIN (
        SELECT object_id, replica_id, hydrated
        FROM mz_internal.mz_compute_dataflow_statuses
        WHERE replica_id <> ''
    ) AS d ON d.object_id = n.object_id AND d.replica_id = n.replica_id
) AS h
LEFT JOIN mz_internal.mz_compute_hydration_times AS t ON t.object_id = h.object_id AND t.replica_id = h.replica_id;
