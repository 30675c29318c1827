-- Foreign-data wrappers: there are none. Tools ask for the relation all the same.
--
-- oid: nothing has one
-- fdwname: nothing has one
-- fdwowner: nothing has one
-- fdwhandler: nothing has one
-- fdwvalidator: nothing has one
-- fdwacl: nothing has one
-- fdwoptions: nothing has one
CREATE VIEW pg_catalog.pg_foreign_data_wrapper AS
SELECT
    NULL::oid AS oid,
    NULL::text AS fdwname,
    NULL::oid AS fdwowner,
    NULL::oid AS fdwhandler,
    NULL::oid AS fdwvalidator,
    NULL::text[] AS fdwacl,
    NULL::text[] AS fdwoptions
WHERE false;
