-- The variables that roles begin their sessions with. Empty, as none can be set; tools of Materialize ask for it.
--
-- role_id: nothing has one
-- parameter_name: nothing has one
-- parameter_value: nothing has one
CREATE VIEW mz_catalog.mz_role_parameters AS
SELECT
    NULL::text AS role_id,
    NULL::text AS parameter_name,
    NULL::text AS parameter_value
WHERE false;
