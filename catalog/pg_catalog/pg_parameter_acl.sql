-- Privileges on settings: there are none. Tools ask for the relation all the same.
--
-- oid: nothing has one
-- parname: nothing has one
-- paracl: nothing has one
CREATE VIEW pg_catalog.pg_parameter_acl AS
SELECT
    NULL::oid AS oid,
    NULL::text AS parname,
    NULL::text[] AS paracl
WHERE false;
