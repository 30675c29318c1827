-- How much each dataflow keeps. On the replica that `SET cluster_replica` names, or the only one of the session's cluster.
--
-- id: the dataflow
-- name: its name
-- records: how many updates are stored
-- batches: in how many batches
-- size: how many bytes they take
-- capacity: how many bytes are taken for them
-- allocations: how many pieces these are
CREATE VIEW mz_introspection.mz_records_per_dataflow AS
SELECT id, name, records, batches, size, capacity, allocations
FROM mz_introspection.mz_dataflow_arrangement_sizes;
