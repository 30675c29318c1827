-- The replicas of clusters, as SHOW CLUSTER REPLICAS has them.
--
-- cluster: the cluster's name
-- replica: the replica's name within its cluster
-- size: its size, a key of `mz_cluster_replica_sizes`
-- ready: whether its work is done, or it has none
-- comment: what COMMENT ON has said of it, or nothing
CREATE VIEW mz_internal.mz_show_cluster_replicas AS
SELECT k.name AS cluster, r.name AS replica, r.size, s.status = 'online' AS ready, coalesce(c.comment, '') AS comment
FROM mz_catalog.mz_cluster_replicas AS r
JOIN mz_catalog.mz_clusters AS k ON k.id = r.cluster_id
JOIN mz_internal.mz_cluster_replica_statuses_raw AS s ON s.replica_id = r.id
LEFT JOIN mz_internal.mz_comments AS c ON c.id = r.id AND c.object_type = 'cluster-replica';
