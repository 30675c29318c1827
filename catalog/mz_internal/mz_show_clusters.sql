-- The clusters with their replicas, as SHOW CLUSTERS has them.
--
-- name: the cluster's name
-- replicas: its replicas with their sizes, the oldest first
-- comment: what COMMENT ON has said of it, or nothing
CREATE VIEW mz_internal.mz_show_clusters AS
SELECT k.name, coalesce(r.replicas, '') AS replicas, coalesce(c.comment, '') AS comment
FROM mz_catalog.mz_clusters AS k
LEFT JOIN (
    SELECT cluster_id, string_agg(name || ' (' || size || ')', ', ' ORDER BY length(id), id) AS replicas
    FROM mz_catalog.mz_cluster_replicas
    GROUP BY cluster_id
) AS r ON r.cluster_id = k.id
LEFT JOIN mz_internal.mz_comments AS c ON c.id = k.id AND c.object_type = 'cluster';
