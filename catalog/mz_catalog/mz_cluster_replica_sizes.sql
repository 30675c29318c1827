-- The sizes that a replica can have.
--
-- size: the size's name, the key of this relation
-- processes: how many processes a replica of the size has
-- workers: into how many slices each process cuts the keys of its arrangements
-- cpu_nano_cores: NULL, as a size limits nothing: what a process may take of its machine is in `mz_cluster_replica_metrics`
-- memory_bytes: NULL likewise
-- disk_bytes: NULL likewise
-- credits_per_hour: 0, as nothing is charged
CREATE SOURCE mz_catalog.mz_cluster_replica_sizes (
    size text NOT NULL,
    processes uint8 NOT NULL,
    workers uint8 NOT NULL,
    cpu_nano_cores uint8,
    memory_bytes uint8,
    disk_bytes uint8,
    credits_per_hour numeric NOT NULL
);
