-- Templates of text search: there are none. Tools ask for the relation all the same.
--
-- oid: nothing has one
-- tmplname: nothing has one
-- tmplnamespace: nothing has one
-- tmplinit: nothing has one
-- tmpllexize: nothing has one
CREATE VIEW pg_catalog.pg_ts_template AS
SELECT
    NULL::oid AS oid,
    NULL::text AS tmplname,
    NULL::oid AS tmplnamespace,
    NULL::oid AS tmplinit,
    NULL::oid AS tmpllexize
WHERE false;
