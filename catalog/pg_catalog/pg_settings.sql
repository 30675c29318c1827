-- What PostgreSQL's tools look up among the settings of a server; the session's own are shown by `SHOW ALL`.
--
-- name: the setting's name
-- setting: its value
CREATE VIEW pg_catalog.pg_settings AS
SELECT name, setting FROM (VALUES ('max_index_keys', '1000')) AS settings (name, setting);
