-- The aggregates among the functions.
--
-- oid: the function's number, as in `mz_functions`
-- agg_kind: `n`: none asks for an order
-- agg_num_direct_args: how many arguments are given once for all rows: none
CREATE SOURCE mz_internal.mz_aggregates (
    oid oid NOT NULL,
    agg_kind text NOT NULL,
    agg_num_direct_args smallint NOT NULL
);
