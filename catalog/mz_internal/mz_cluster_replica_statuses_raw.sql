-- Whether the work of each replica is done. The process that leads tells it by the replica's last sign of life, 3 seconds old at most; any
-- other asks the replica's process whether it is there.
--
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- process_id: which of the replica's processes it is, counted from 0
-- status: `online` where a process runs its dataflows, or would; else `offline`
-- reason: why it is offline; NULL where it is online
CREATE SOURCE mz_internal.mz_cluster_replica_statuses_raw (
    replica_id text NOT NULL,
    process_id uint8 NOT NULL,
    status text NOT NULL,
    reason text
);
