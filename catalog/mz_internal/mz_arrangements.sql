-- The state that the nodes of each dataflow keep: rows arranged by a key, in a shard of their own. Dataflows that need the same rows by the
-- same key share one shard.
--
-- object_id: the index or materialized view whose dataflow it is, a key of `mz_objects`
-- plan_node_id: the node that keeps it, as in `EXPLAIN PHYSICAL PLAN WITH (node_ids)`
-- replica_id: the replica, a key of `mz_cluster_replicas`
-- shard_id: the shard that holds it
-- rows: how many updates are stored, before those that cancel each other are merged
-- bytes: how many bytes they take as they are stored
CREATE SOURCE mz_internal.mz_arrangements (
    object_id text NOT NULL,
    plan_node_id uint8 NOT NULL,
    replica_id text NOT NULL,
    shard_id text NOT NULL,
    rows uint8 NOT NULL,
    bytes uint8 NOT NULL
);
