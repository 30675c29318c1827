-- The tables and sources that each index and materialized view is made of in the end, through what its dataflow reads. What
-- reads nothing is such an input, too, and has no row of its own.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- input_id: what it is made of, a key of `mz_objects`
CREATE SOURCE mz_internal.mz_compute_roots (
    object_id text NOT NULL,
    input_id text NOT NULL
);
