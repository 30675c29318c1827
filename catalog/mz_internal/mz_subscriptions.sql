-- The subscriptions that run in this process.
--
-- id: tells it from others of this process
-- session_id: the session that began it, a key of `mz_sessions`
-- cluster_id: that session's cluster, a key of `mz_clusters`
-- created_at: when it began
-- referenced_object_ids: what it reads, keys of `mz_objects`
CREATE SOURCE mz_internal.mz_subscriptions (
    id text NOT NULL,
    session_id uuid,
    cluster_id text,
    created_at timestamp with time zone NOT NULL,
    referenced_object_ids text list NOT NULL
);
