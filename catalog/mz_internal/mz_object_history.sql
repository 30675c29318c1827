-- When the objects were made and dropped that there are, or that `mz_audit_events` has.
--
-- id: the object, a key of `mz_objects` while it is there
-- cluster_id: the cluster that maintains it, a key of `mz_clusters`; NULL where none does, or it is dropped
-- object_type: what kind of object it is, as in `mz_objects`
-- created_at: when it was made; NULL where that is not known any more; `mz_audit_events` keeps the latest events
-- dropped_at: when it was dropped; NULL while it is there
CREATE VIEW mz_internal.mz_object_history AS
SELECT
    l.id,
    o.cluster_id,
    l.object_type,
    l.created_at,
    l.dropped_at
FROM (
    SELECT
        id,
        object_type,
        max(occurred_at) FILTER (WHERE event_type = 'create') AS created_at,
        max(occurred_at) FILTER (WHERE event_type = 'drop') AS dropped_at
    FROM mz_internal.mz_object_lifetimes
    GROUP BY id, object_type
) AS l
LEFT JOIN mz_catalog.mz_objects AS o ON o.id = l.id;
