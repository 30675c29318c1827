-- Collations: texts are compared by their bytes. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- collname: nothing has one
-- collnamespace: nothing has one
-- collowner: nothing has one
-- collprovider: nothing has one
-- collisdeterministic: nothing has one
-- collencoding: nothing has one
-- collcollate: nothing has one
-- collctype: nothing has one
-- collversion: nothing has one
CREATE VIEW pg_catalog.pg_collation AS
SELECT
    NULL::oid AS oid,
    NULL::text AS collname,
    NULL::oid AS collnamespace,
    NULL::oid AS collowner,
    NULL::text AS collprovider,
    NULL::boolean AS collisdeterministic,
    NULL::integer AS collencoding,
    NULL::text AS collcollate,
    NULL::text AS collctype,
    NULL::text AS collversion
WHERE false;
