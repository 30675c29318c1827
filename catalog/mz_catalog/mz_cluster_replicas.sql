-- The replicas of each cluster. Without a process of its own a replica runs in the process that leads: of those the oldest of a cluster
-- does all of its work, and the others stand in for it.
--
-- id: the replica's id, the key of this relation
-- name: the replica's name within its cluster
-- cluster_id: the cluster, a key of `mz_clusters`
-- size: the replica's size, a key of `mz_cluster_replica_sizes`
-- availability_zone: NULL, as who starts a replica says where it runs
-- owner_id: the role that owns it, a key of `mz_roles`
-- disk: true, as all replicas spill to the disks of their machines
-- introspection_interval: how often it looks at what it is to tell of itself; nothing: never
CREATE SOURCE mz_catalog.mz_cluster_replicas (
    id text NOT NULL,
    name text NOT NULL,
    cluster_id text NOT NULL,
    size text,
    availability_zone text,
    owner_id text NOT NULL,
    disk boolean NOT NULL,
    introspection_interval interval NOT NULL
);
