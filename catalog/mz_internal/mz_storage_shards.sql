-- In which shard the rows of each table and materialized view are.
--
-- object_id: the table or materialized view, a key of `mz_objects`
-- shard_id: the shard's id in Consensus, and the first part of its blobs' keys
CREATE SOURCE mz_internal.mz_storage_shards (
    object_id text NOT NULL,
    shard_id text NOT NULL
);
