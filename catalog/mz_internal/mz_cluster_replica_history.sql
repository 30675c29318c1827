-- When the replicas were made and dropped that `mz_audit_events` has; it keeps the latest events.
--
-- replica_id: the replica, a key of `mz_cluster_replicas` while it is there
-- size: the size that it was made with
-- cluster_id: the cluster that it was made in, a key of `mz_clusters` while that is there
-- cluster_name: the name that the cluster had
-- replica_name: the name that the replica had
-- created_at: when it was made; NULL where that is not known any more
-- dropped_at: when it was dropped; NULL while it is there
CREATE VIEW mz_internal.mz_cluster_replica_history AS
SELECT
    e.details ->> 'replica_id' AS replica_id,
    max(e.details ->> 'logical_size') AS size,
    e.details ->> 'cluster_id' AS cluster_id,
    max(e.details ->> 'cluster_name') AS cluster_name,
    max(e.details ->> 'replica_name') AS replica_name,
    max(e.occurred_at) FILTER (WHERE e.event_type = 'create') AS created_at,
    max(e.occurred_at) FILTER (WHERE e.event_type = 'drop') AS dropped_at
FROM mz_catalog.mz_audit_events AS e
WHERE e.object_type = 'cluster-replica' AND e.event_type IN ('create', 'drop')
GROUP BY 1, 3;
