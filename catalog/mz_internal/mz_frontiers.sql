-- The times at which each collection can be read.
--
-- object_id: the table, index or materialized view, a key of `mz_objects`
-- read_frontier: the earliest time at which it can be read (its since); NULL where no time can be read any more
-- write_frontier: the first time at which it may still change (its upper); NULL where it will never change
CREATE SOURCE mz_internal.mz_frontiers (
    object_id text NOT NULL,
    read_frontier mz_timestamp,
    write_frontier mz_timestamp
);
