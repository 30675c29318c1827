-- Extensions. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- extname: nothing has one
-- extowner: nothing has one
-- extnamespace: nothing has one
-- extrelocatable: nothing has one
-- extversion: nothing has one
-- extconfig: nothing has one
-- extcondition: nothing has one
CREATE VIEW pg_catalog.pg_extension AS
SELECT
    NULL::oid AS oid,
    NULL::text AS extname,
    NULL::oid AS extowner,
    NULL::oid AS extnamespace,
    NULL::boolean AS extrelocatable,
    NULL::text AS extversion,
    NULL::oid[] AS extconfig,
    NULL::text[] AS extcondition
WHERE false;
