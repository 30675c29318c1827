-- The roles and what each may do, as PostgreSQL's tools ask for them. Every role may do everything.
--
-- oid: the role's number, as in `mz_roles`
-- rolname: the role's name
-- rolsuper: true
-- rolinherit: whether it has what the roles have that it is a member of
-- rolcreaterole: true
-- rolcreatedb: true
-- rolcanlogin: true
-- rolreplication: false
-- rolbypassrls: false
-- rolconnlimit: -1: no limit
-- rolpassword: NULL
-- rolvaliduntil: NULL
CREATE VIEW pg_catalog.pg_authid AS
SELECT
    oid,
    rolname,
    rolsuper,
    rolinherit,
    rolcreaterole,
    rolcreatedb,
    rolcanlogin,
    rolreplication,
    rolbypassrls,
    rolconnlimit,
    rolpassword,
    rolvaliduntil
FROM pg_catalog.pg_roles;
