-- The roles as users, as PostgreSQL's tools ask for them. Every role may do everything.
--
-- usename: the role's name
-- usesysid: its number, as in `mz_roles`
-- usecreatedb: true
-- usesuper: true
-- userepl: false
-- usebypassrls: false
-- passwd: NULL
-- valuntil: NULL
-- useconfig: NULL
CREATE VIEW pg_catalog.pg_user AS
SELECT
    name AS usename,
    oid AS usesysid,
    true AS usecreatedb,
    true AS usesuper,
    false AS userepl,
    false AS usebypassrls,
    NULL::text AS passwd,
    NULL::timestamptz AS valuntil,
    NULL::text[] AS useconfig
FROM mz_catalog.mz_roles;
