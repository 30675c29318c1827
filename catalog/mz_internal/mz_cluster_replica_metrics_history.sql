-- What the process of each replica took of its machine, and might take (`mz_cluster_replica_metrics`), from time to time: every
-- `replica_metrics_history_interval`, kept for `replica_metrics_history_retention_interval`. A replica whose process did not answer has no
-- entry for that time. The latest fifty thousand or so are kept.
--
-- replica_id: the replica, a key of `mz_cluster_replicas` while it exists
-- process_id: which of the replica's processes it is, counted from 0
-- cpu_nano_cores: the CPU time that it and those that it has started took since it was asked before, in nanoseconds a second, which is
--     billionths of a core; NULL where the system does not say
-- cpu_limit: the least of the cores that it could run on and its control group's quota, in billionths of a core
-- memory_bytes: resident memory of the process and of those that it has started, Spark's among them; NULL where the system does not say
-- memory_limit: the least of what the machine has, what its control group allows and what the process may map (`ulimit -v`)
-- disk_bytes: what it has spilled, and keeps close of its arrangements, on its machine's disks
-- disk_limit: `disk_bytes` and what was free where that is, on the fullest of these disks
-- occurred_at: when it was asked, by the clock of the process that led
CREATE SOURCE mz_internal.mz_cluster_replica_metrics_history (
    replica_id text NOT NULL,
    process_id uint8 NOT NULL,
    cpu_nano_cores uint8,
    cpu_limit uint8,
    memory_bytes uint8,
    memory_limit uint8,
    disk_bytes uint8 NOT NULL,
    disk_limit uint8,
    occurred_at timestamp with time zone NOT NULL
);
