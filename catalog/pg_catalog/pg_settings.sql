-- The settings of this session and of the system, as `SHOW ALL` shows them, and what PostgreSQL's tools look up among those of a server.
--
-- name: the setting's name
-- setting: its value
-- context: who may set it: `user` by SET, `sighup` ALTER SYSTEM alone, `internal` nobody
-- vartype: `bool`, `integer`, `enum` or `string`
-- min_val: the least that it may be; NULL where it has no bound
-- max_val: the most that it may be; NULL where it has no bound
-- enumvals: what it may be, where that is a list
-- boot_val: its value where nobody has set it
CREATE VIEW pg_catalog.pg_settings AS
SELECT v.shown AS name, s.setting, v.context, v.vartype, v.min_val, v.max_val, v.enumvals, v.boot_val
FROM unnest(mz_internal.mz_viewable_variables()) AS s (name, setting)
JOIN mz_internal.mz_variables AS v ON v.name = s.name
UNION ALL
SELECT 'max_index_keys', '1000', 'internal', 'integer', '1000', '1000', NULL::text[], '1000';
