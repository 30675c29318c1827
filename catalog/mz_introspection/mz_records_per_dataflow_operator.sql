-- How much each operator keeps. On the replica that `SET cluster_replica` names, or the only one of the session's cluster.
--
-- id: the operator, a key of `mz_dataflow_operators`
-- name: its name
-- dataflow_id: the dataflow, a key of `mz_dataflows`
-- records: how many updates are stored
-- batches: in how many batches
-- size: how many bytes they take
-- capacity: how many bytes are taken for them
-- allocations: how many pieces these are
CREATE VIEW mz_introspection.mz_records_per_dataflow_operator AS
SELECT o.id, o.name, o.dataflow_id, a.records, a.batches, a.size, a.capacity, a.allocations
FROM mz_introspection.mz_dataflow_operator_dataflows AS o
JOIN mz_introspection.mz_arrangement_sizes AS a ON a.operator_id = o.id;
