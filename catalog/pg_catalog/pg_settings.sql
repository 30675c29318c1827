-- The settings of this session and of the system, as `SHOW ALL` shows them, and what PostgreSQL's tools look up among those of a server.
--
-- name: the setting's name
-- setting: its value
CREATE VIEW pg_catalog.pg_settings AS
SELECT name, setting FROM unnest(mz_internal.mz_viewable_variables()) AS variables (name, setting)
UNION ALL
SELECT name, setting FROM (VALUES ('max_index_keys', '1000')) AS settings (name, setting);
