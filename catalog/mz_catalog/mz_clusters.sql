-- The clusters: each maintains materialized views and indexes, on its replicas. `mz_catalog_server` is the system's own, where what reads
-- the catalog alone is answered; it has no replicas, and cannot be changed.
--
-- id: the cluster's id, the key of this relation
-- name: the cluster's name
-- managed: whether its replicas follow from a size and a replication factor
-- size: the size of its replicas, a key of `mz_cluster_replica_sizes`; NULL where it is not managed
-- replication_factor: how many replicas it has; NULL where it is not managed
-- disk: true, as all replicas spill to the disks of their machines; NULL where it is not managed
-- availability_zones: NULL, as who starts a replica says where it runs
-- owner_id: the role that owns it, a key of `mz_roles`
-- privileges: who was granted what on it, as `grantee=letters/grantor`; nothing before the sign is everybody
-- introspection_debugging: false, as replicas tell nothing of how they tell of themselves; NULL where it is not managed
-- introspection_interval: how often its replicas look at what they are to tell of themselves, nothing: never; NULL where it is not managed
CREATE SOURCE mz_catalog.mz_clusters (
    id text NOT NULL,
    name text NOT NULL,
    managed boolean NOT NULL,
    size text,
    replication_factor uint4,
    disk boolean,
    availability_zones text list,
    owner_id text NOT NULL,
    privileges mz_aclitem[] NOT NULL,
    introspection_debugging boolean,
    introspection_interval interval
);
