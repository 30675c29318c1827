-- Parsers of text search: there are none. Tools ask for the relation all the same.
--
-- oid: nothing has one
-- prsname: nothing has one
-- prsnamespace: nothing has one
-- prsstart: nothing has one
-- prstoken: nothing has one
-- prsend: nothing has one
-- prsheadline: nothing has one
-- prslextype: nothing has one
CREATE VIEW pg_catalog.pg_ts_parser AS
SELECT
    NULL::oid AS oid,
    NULL::text AS prsname,
    NULL::oid AS prsnamespace,
    NULL::oid AS prsstart,
    NULL::oid AS prstoken,
    NULL::oid AS prsend,
    NULL::oid AS prsheadline,
    NULL::oid AS prslextype
WHERE false;
