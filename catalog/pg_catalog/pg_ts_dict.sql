-- Dictionaries of text search: there are none. Tools ask for the relation all the same.
--
-- oid: nothing has one
-- dictname: nothing has one
-- dictnamespace: nothing has one
-- dictowner: nothing has one
-- dicttemplate: nothing has one
-- dictinitoption: nothing has one
CREATE VIEW pg_catalog.pg_ts_dict AS
SELECT
    NULL::oid AS oid,
    NULL::text AS dictname,
    NULL::oid AS dictnamespace,
    NULL::oid AS dictowner,
    NULL::oid AS dicttemplate,
    NULL::text AS dictinitoption
WHERE false;
