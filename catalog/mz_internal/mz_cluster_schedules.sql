-- How it is decided when clusters have replicas.
--
-- cluster_id: the cluster, a key of `mz_clusters`
-- type: `manual`: CREATE CLUSTER and ALTER CLUSTER decide it; `on-refresh`: it has one while a view in it is to be refreshed
-- refresh_hydration_time_estimate: how long before a refresh it is switched on; NULL where that is decided by hand
CREATE SOURCE mz_internal.mz_cluster_schedules (
    cluster_id text NOT NULL,
    type text NOT NULL,
    refresh_hydration_time_estimate interval
);
