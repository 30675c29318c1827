-- The replicas of each cluster: each is one Spark application that does all of the cluster's work.
--
-- id: the replica's id, the key of this relation
-- name: the replica's name within its cluster
-- cluster_id: the cluster, a key of `mz_clusters`
-- size: the replica's size, a key of `mz_cluster_replica_sizes`
CREATE SOURCE mz_catalog.mz_cluster_replicas (
    id text NOT NULL,
    name text NOT NULL,
    cluster_id text NOT NULL,
    size text
);
