-- How many bytes each table and materialized view took in Blob, and within its state, from time to time (`mz_storage_usage_by_shard`); those
-- that were dropped since are left out. `mz_recent_storage_usage` has what they take now.
--
-- object_id: the table or materialized view, a key of `mz_objects`
-- size_bytes: how many bytes
-- collection_timestamp: when they were counted
CREATE VIEW mz_catalog.mz_storage_usage AS
SELECT s.object_id, sum(u.size_bytes)::uint8 AS size_bytes, u.collection_timestamp
FROM mz_internal.mz_storage_shards AS s
JOIN mz_internal.mz_storage_usage_by_shard AS u USING (shard_id)
GROUP BY s.object_id, u.collection_timestamp;
