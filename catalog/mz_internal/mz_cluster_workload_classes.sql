-- What clusters are for, as whoever runs them would have said; nobody can say it here.
--
-- id: the cluster, a key of `mz_clusters`
-- workload_class: NULL
CREATE VIEW mz_internal.mz_cluster_workload_classes AS
SELECT id, NULL::text AS workload_class
FROM mz_catalog.mz_clusters;
