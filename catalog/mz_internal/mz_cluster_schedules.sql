-- How it is decided when clusters have replicas: all by statements.
--
-- cluster_id: the cluster, a key of `mz_clusters`
-- type: `manual`, as CREATE CLUSTER and ALTER CLUSTER decide it
-- refresh_hydration_time_estimate: NULL, as no cluster is switched on for refreshes alone
CREATE VIEW mz_internal.mz_cluster_schedules AS
SELECT id AS cluster_id, 'manual'::text AS type, NULL::interval AS refresh_hydration_time_estimate
FROM mz_catalog.mz_clusters;
