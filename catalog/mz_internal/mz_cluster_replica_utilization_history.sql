-- How much of what they might take the processes of replicas took, from time to time (`mz_cluster_replica_metrics_history`).
--
-- replica_id: the replica, a key of `mz_cluster_replicas` while it exists
-- process_id: which of the replica's processes it is, counted from 0
-- cpu_percent: the CPU time that it took since it was asked before, of its limit
-- memory_percent: its memory, of its limit
-- disk_percent: its part of the disk, of its limit
-- occurred_at: when it was asked, by the clock of the process that led
CREATE VIEW mz_internal.mz_cluster_replica_utilization_history AS
SELECT
    m.replica_id,
    m.process_id,
    m.cpu_nano_cores::double precision / nullif(m.cpu_limit, 0) * 100 AS cpu_percent,
    m.memory_bytes::double precision / nullif(m.memory_limit, 0) * 100 AS memory_percent,
    m.disk_bytes::double precision / nullif(m.disk_limit, 0) * 100 AS disk_percent,
    m.occurred_at
FROM mz_internal.mz_cluster_replica_metrics_history AS m;
