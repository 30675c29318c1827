-- The statement that makes each cluster, as SHOW CREATE CLUSTER has it.
--
-- name: the cluster's name
-- create_sql: the statement
CREATE VIEW mz_internal.mz_show_create_clusters AS
SELECT
    k.name,
    'CREATE CLUSTER "' || replace(k.name, '"', '""') || '" ('
    || CASE
        WHEN k.managed THEN
            'DISK = true, INTROSPECTION DEBUGGING = false, INTROSPECTION INTERVAL = INTERVAL '''
            || k.introspection_interval::text || ''', MANAGED = true'
            || CASE
                WHEN s.type = 'manual' THEN ', REPLICATION FACTOR = ' || k.replication_factor::text
                ELSE ''
            END
            || ', SIZE = ''' || replace(k.size, '''', '''''') || ''', SCHEDULE = '
            || CASE
                WHEN s.type = 'manual' THEN 'MANUAL'
                ELSE
                    'ON REFRESH (HYDRATION TIME ESTIMATE = ''' || s.refresh_hydration_time_estimate::text
                    || ''')'
            END
        ELSE 'REPLICAS (' || coalesce(r.replicas, '') || ')'
    END
    || ')' AS create_sql
FROM mz_catalog.mz_clusters AS k
JOIN mz_internal.mz_cluster_schedules AS s ON s.cluster_id = k.id
LEFT JOIN (
    SELECT
        cluster_id,
        string_agg(
            '"' || replace(name, '"', '""') || '" (SIZE = ''' || size || ''''
            || CASE
                WHEN introspection_interval <> INTERVAL '1 second'
                    THEN ', INTROSPECTION INTERVAL = ''' || introspection_interval::text || ''''
                ELSE ''
            END
            || ')', ', ' ORDER BY length(id), id
        ) AS replicas
    FROM mz_catalog.mz_cluster_replicas
    GROUP BY cluster_id
) AS r ON r.cluster_id = k.id;
