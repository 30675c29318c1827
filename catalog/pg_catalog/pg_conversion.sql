-- Conversions between encodings: there are none. Tools ask for the relation all the same.
--
-- oid: nothing has one
-- conname: nothing has one
-- connamespace: nothing has one
-- conowner: nothing has one
-- conforencoding: nothing has one
-- contoencoding: nothing has one
-- conproc: nothing has one
-- condefault: nothing has one
CREATE VIEW pg_catalog.pg_conversion AS
SELECT
    NULL::oid AS oid,
    NULL::text AS conname,
    NULL::oid AS connamespace,
    NULL::oid AS conowner,
    NULL::integer AS conforencoding,
    NULL::integer AS contoencoding,
    NULL::oid AS conproc,
    NULL::boolean AS condefault
WHERE false;
