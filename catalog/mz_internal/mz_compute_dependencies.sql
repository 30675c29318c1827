-- What each dataflow reads: plain views are seen through, and where an index is read the index stands.
--
-- object_id: the index or materialized view that the dataflow maintains, a key of `mz_objects`
-- dependency_id: a collection or index that it reads, a key of `mz_objects`; an index that was dropped stands for as long as it is read
CREATE SOURCE mz_internal.mz_compute_dependencies (
    object_id text NOT NULL,
    dependency_id text NOT NULL
);
