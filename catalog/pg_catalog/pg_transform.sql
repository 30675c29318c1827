-- Transforms between types and languages: there are none. Tools ask for the relation all the same.
--
-- oid: nothing has one
-- trftype: nothing has one
-- trflang: nothing has one
-- trffromsql: nothing has one
-- trftosql: nothing has one
CREATE VIEW pg_catalog.pg_transform AS
SELECT
    NULL::oid AS oid,
    NULL::oid AS trftype,
    NULL::oid AS trflang,
    NULL::oid AS trffromsql,
    NULL::oid AS trftosql
WHERE false;
