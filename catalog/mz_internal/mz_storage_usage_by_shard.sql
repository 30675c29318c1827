-- What the shards of tables and materialized views took in Blob, and within their state, from time to time: every
-- `storage_usage_collection_interval`, kept for `storage_usage_retention_period`. The latest fifty thousand or so are kept.
--
-- id: names the entry
-- shard_id: the shard's id in Consensus, as in `mz_storage_shards`
-- size_bytes: how many bytes
-- collection_timestamp: when they were counted, by the clock of the process that led
CREATE SOURCE mz_internal.mz_storage_usage_by_shard (
    id uint8 NOT NULL,
    shard_id text NOT NULL,
    size_bytes uint8 NOT NULL,
    collection_timestamp timestamp with time zone NOT NULL
);
