-- How many bytes the shards of tables and materialized views take in Blob now, and within their state. What only the log has of a table that
-- was just written is not counted.
--
-- object_id: the table or materialized view, a key of `mz_objects`
-- size_bytes: how many bytes
CREATE SOURCE mz_catalog.mz_recent_storage_usage (
    object_id text NOT NULL,
    size_bytes uint8 NOT NULL
);
