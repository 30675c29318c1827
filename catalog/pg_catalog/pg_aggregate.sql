-- The aggregates, as PostgreSQL's tools ask for them.
--
-- aggfnoid: the function's number, as in `pg_proc`
-- aggkind: `n`
-- aggnumdirectargs: 0
CREATE VIEW pg_catalog.pg_aggregate AS
SELECT oid AS aggfnoid, agg_kind AS aggkind, agg_num_direct_args AS aggnumdirectargs
FROM mz_internal.mz_aggregates;
