-- For how long the history of tables, materialized views and indexes is kept that say so (`RETAIN HISTORY FOR`).
--
-- id: the object, a key of `mz_objects`
-- strategy: `FOR`: for a length of time
-- value: that, in milliseconds
CREATE SOURCE mz_internal.mz_history_retention_strategies (
    id text NOT NULL,
    strategy text NOT NULL,
    value jsonb NOT NULL
);
