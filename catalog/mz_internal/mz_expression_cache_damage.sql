-- What was wrong with the expression cache, in which optimized plans outlive a restart: shards of it that were set aside, whichever process
-- found that, and what this process could not read of the present one. Plans that were lost so were made again.
--
-- shard_id: the shard
-- entry: the key of the entry; NULL where the shard as a whole was damaged
-- found_at: when it was found
-- reason: what was wrong
CREATE SOURCE mz_internal.mz_expression_cache_damage (
    shard_id text NOT NULL,
    entry text,
    found_at timestamp with time zone NOT NULL,
    reason text NOT NULL
);
