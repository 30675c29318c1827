-- The operators of each dataflow: itself, and the nodes of its plan. On the replica that `SET cluster_replica` names, or the only one of
-- the session's cluster.
--
-- id: the operator
-- name: its name: of a dataflow its own, of a node its line in EXPLAIN PHYSICAL PLAN
CREATE VIEW mz_introspection.mz_dataflow_operators AS
SELECT id, name
FROM mz_introspection.mz_dataflow_operator_dataflows;
