-- The sizes that a replica can have.
--
-- size: the size's name, the key of this relation
-- processes: how many processes a replica of the size has
-- workers: into how many slices each process cuts the keys of its arrangements
CREATE SOURCE mz_catalog.mz_cluster_replica_sizes (
    size text NOT NULL,
    processes uint8 NOT NULL,
    workers uint8 NOT NULL
);
