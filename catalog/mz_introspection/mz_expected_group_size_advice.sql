-- Which nodes are planned for larger groups than they have, and what a hint (`AGGREGATE INPUT GROUP SIZE` and its like) would save. Empty, as
-- groups of any size are kept in one arrangement, however many levels EXPLAIN shows, so that no hint saves anything; tools of Materialize ask for it.
--
-- dataflow_id: nothing has one
-- dataflow_name: nothing has one
-- region_id: nothing has one
-- region_name: nothing has one
-- levels: nothing has one
-- to_cut: nothing has one
-- savings: nothing has one
-- hint: nothing has one
CREATE VIEW mz_introspection.mz_expected_group_size_advice AS
SELECT
    NULL::uint8 AS dataflow_id,
    NULL::text AS dataflow_name,
    NULL::uint8 AS region_id,
    NULL::text AS region_name,
    NULL::bigint AS levels,
    NULL::bigint AS to_cut,
    NULL::numeric AS savings,
    NULL::double precision AS hint
WHERE false;
