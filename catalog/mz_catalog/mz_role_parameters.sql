-- The variables that the sessions of roles begin with, as ALTER ROLE … SET has set them.
--
-- role_id: the role, a key of `mz_roles`
-- parameter_name: the variable
-- parameter_value: what it is set to
CREATE SOURCE mz_catalog.mz_role_parameters (
    role_id text NOT NULL,
    parameter_name text NOT NULL,
    parameter_value text NOT NULL
);
