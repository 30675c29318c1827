-- Whether the work of each replica is done, and since when (`mz_cluster_replica_statuses_raw`, `mz_cluster_replica_status_history`).
--
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- process_id: which of the replica's processes it is, counted from 0
-- status: `online` where a process runs its dataflows, or would; else `offline`
-- reason: why it is offline; NULL where it is online
-- updated_at: when the process that led saw it become so; NULL where none has seen it yet
CREATE VIEW mz_internal.mz_cluster_replica_statuses AS
SELECT s.replica_id, s.process_id, s.status, s.reason, h.occurred_at AS updated_at
FROM mz_internal.mz_cluster_replica_statuses_raw AS s
LEFT JOIN (
    SELECT DISTINCT ON (replica_id, process_id) replica_id, process_id, status, occurred_at
    FROM mz_internal.mz_cluster_replica_status_history
    ORDER BY replica_id, process_id, occurred_at DESC
) AS h ON h.replica_id = s.replica_id AND h.process_id = s.process_id AND h.status = s.status;
