-- Tables in partitions. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- partrelid: nothing has one
-- partstrat: nothing has one
-- partnatts: nothing has one
-- partdefid: nothing has one
-- partattrs: nothing has one
-- partexprs: nothing has one
CREATE VIEW pg_catalog.pg_partitioned_table AS
SELECT
    NULL::oid AS partrelid,
    NULL::text AS partstrat,
    NULL::smallint AS partnatts,
    NULL::oid AS partdefid,
    NULL::smallint[] AS partattrs,
    NULL::text AS partexprs
WHERE false;
