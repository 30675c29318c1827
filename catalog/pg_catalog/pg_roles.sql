-- The roles, as PostgreSQL's tools ask for them. Every role may do everything.
--
-- oid: the role's number, as in `mz_roles`
-- rolname: the role's name
-- rolsuper: true
-- rolinherit: whether it has what the roles have that it is a member of
-- rolcreaterole: true
-- rolcreatedb: true
-- rolcanlogin: true
-- rolreplication: false
-- rolconnlimit: -1: no limit
-- rolpassword: NULL
-- rolvaliduntil: NULL
-- rolbypassrls: false
-- rolconfig: the variables that its sessions begin with, as `name=value`; NULL where there are none
CREATE VIEW pg_catalog.pg_roles AS
SELECT
    oid,
    name AS rolname,
    true AS rolsuper,
    inherit AS rolinherit,
    true AS rolcreaterole,
    true AS rolcreatedb,
    true AS rolcanlogin,
    false AS rolreplication,
    -1 AS rolconnlimit,
    NULL::text AS rolpassword,
    NULL::timestamptz AS rolvaliduntil,
    false AS rolbypassrls,
    p.rolconfig
FROM mz_catalog.mz_roles AS r
LEFT JOIN (
    SELECT role_id, array_agg(parameter_name || '=' || parameter_value ORDER BY parameter_name) AS rolconfig
    FROM mz_catalog.mz_role_parameters
    GROUP BY role_id
) AS p ON p.role_id = r.id;
