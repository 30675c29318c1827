-- What became of each replica, and when: an entry when its work begins to be done or ceases to, or ceases for another reason than before, and
-- one when a process begins to lead. One that crashes again and again has an entry for each time that it was seen to come or go. The
-- latest two thousand or so are kept.
--
-- replica_id: the replica, a key of `mz_cluster_replicas` while it exists
-- process_id: which of the replica's processes it is, counted from 0
-- status: `online` where a process runs its dataflows, or would; else `offline`
-- reason: why it is offline; NULL where it is online
-- occurred_at: when that was seen, by the clock of the process that led
CREATE SOURCE mz_internal.mz_cluster_replica_status_history (
    replica_id text NOT NULL,
    process_id uint8 NOT NULL,
    status text NOT NULL,
    reason text,
    occurred_at timestamp with time zone NOT NULL
);
