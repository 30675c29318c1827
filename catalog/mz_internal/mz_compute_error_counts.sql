-- How many errors each dataflow's export holds now, on all replicas together; those without errors are not here.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- count: how many
CREATE VIEW mz_internal.mz_compute_error_counts AS
SELECT object_id, sum(count) AS count
FROM mz_internal.mz_compute_error_counts_raw_unified
GROUP BY object_id
HAVING sum(count) <> 0;
