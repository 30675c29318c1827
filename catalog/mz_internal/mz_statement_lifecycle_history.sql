-- How far the statements of `mz_recent_activity_log` have come, and when.
--
-- statement_id: the statement, a key of `mz_recent_activity_log` (`execution_id`)
-- event_type: `execution-began`, `optimization-finished`, `storage-dependencies-finished` (what it reads of tables and views is complete at
--     its time), `compute-dependencies-finished` (what it reads of indexes is) or `execution-finished`
-- occurred_at: when that was
CREATE SOURCE mz_internal.mz_statement_lifecycle_history (
    statement_id uuid NOT NULL,
    event_type text NOT NULL,
    occurred_at timestamp with time zone NOT NULL
);
