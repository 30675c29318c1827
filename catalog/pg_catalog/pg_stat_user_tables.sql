-- The tables and materialized views of users, as PostgreSQL's tools ask for them. Nothing is counted here: the numbers are 0.
--
-- relid: its number, as in `pg_class`
-- schemaname: the schema it is in
-- relname: its name
-- seq_scan: 0
-- seq_tup_read: 0
-- idx_scan: 0
-- idx_tup_fetch: 0
-- n_tup_ins: 0
-- n_tup_upd: 0
-- n_tup_del: 0
-- n_live_tup: 0
-- n_dead_tup: 0
-- last_vacuum: NULL
-- last_autovacuum: NULL
-- last_analyze: NULL
-- last_autoanalyze: NULL
CREATE VIEW pg_catalog.pg_stat_user_tables AS
SELECT
    c.oid AS relid,
    n.nspname AS schemaname,
    c.relname,
    0::bigint AS seq_scan,
    0::bigint AS seq_tup_read,
    0::bigint AS idx_scan,
    0::bigint AS idx_tup_fetch,
    0::bigint AS n_tup_ins,
    0::bigint AS n_tup_upd,
    0::bigint AS n_tup_del,
    0::bigint AS n_live_tup,
    0::bigint AS n_dead_tup,
    NULL::timestamptz AS last_vacuum,
    NULL::timestamptz AS last_autovacuum,
    NULL::timestamptz AS last_analyze,
    NULL::timestamptz AS last_autoanalyze
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'm') AND n.nspname NOT IN ('mz_catalog', 'mz_internal', 'mz_introspection', 'pg_catalog', 'information_schema');
