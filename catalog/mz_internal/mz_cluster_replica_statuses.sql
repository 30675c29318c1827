-- Whether the work of each replica is done, as far as can be told from here: the process that does it may have ended unnoticed elsewhere.
--
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- process_id: which of the replica's processes it is, counted from 0
-- status: `online` where a process runs its dataflows, or it has none to run; else `offline`
-- reason: why it is offline; NULL where it is online
CREATE SOURCE mz_internal.mz_cluster_replica_statuses (
    replica_id text NOT NULL,
    process_id uint8 NOT NULL,
    status text NOT NULL,
    reason text
);
