-- The roles that the session has, as the SQL standard describes them: every role but the system's.
--
-- role_name: the role's name
CREATE VIEW information_schema.enabled_roles AS
SELECT name AS role_name FROM mz_catalog.mz_roles WHERE id NOT LIKE 's%';
