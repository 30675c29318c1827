-- The databases, as PostgreSQL's tools ask for them.
--
-- oid: the database's number, as in `mz_databases`
-- datname: the database's name
-- datdba: the number of the role that owns it
-- encoding: 6: UTF-8
-- datcollate: `C`: texts are compared by their bytes
-- datctype: `C`: texts are compared by their bytes
-- datistemplate: false
-- datallowconn: true
-- datacl: NULL: `mz_databases` has the privileges
-- datlocprovider: `c`, the provider of the collation `C`
-- daticulocale: NULL: no collation is ICU's
-- daticurules: NULL
-- dattablespace: 0
-- datconnlimit: -1: no number of sessions is set
CREATE VIEW pg_catalog.pg_database AS
SELECT
    d.oid,
    d.name AS datname,
    r.oid AS datdba,
    6 AS encoding,
    'C' AS datcollate,
    'C' AS datctype,
    false AS datistemplate,
    true AS datallowconn,
    NULL::text[] AS datacl,
    'c' AS datlocprovider,
    NULL::text AS daticulocale,
    NULL::text AS daticurules,
    0::oid AS dattablespace,
    -1 AS datconnlimit
FROM mz_catalog.mz_databases AS d
JOIN mz_catalog.mz_roles AS r ON r.id = d.owner_id;
