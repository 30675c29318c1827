-- Configurations of text search: there are none. Tools ask for the relation all the same.
--
-- oid: nothing has one
-- cfgname: nothing has one
-- cfgnamespace: nothing has one
-- cfgowner: nothing has one
-- cfgparser: nothing has one
CREATE VIEW pg_catalog.pg_ts_config AS
SELECT
    NULL::oid AS oid,
    NULL::text AS cfgname,
    NULL::oid AS cfgnamespace,
    NULL::oid AS cfgowner,
    NULL::oid AS cfgparser
WHERE false;
