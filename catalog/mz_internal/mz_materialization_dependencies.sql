-- What indexes and materialized views are computed from. `mz_object_dependencies` has what definitions name instead.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- dependency_id: a collection or index that it reads, a key of `mz_objects`
CREATE VIEW mz_internal.mz_materialization_dependencies AS
SELECT object_id, dependency_id
FROM mz_internal.mz_compute_dependencies;
