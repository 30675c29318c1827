-- Subscriptions of logical replication: there are none. Tools ask for the relation all the same.
--
-- oid: nothing has one
-- subdbid: nothing has one
-- subname: nothing has one
-- subowner: nothing has one
-- subenabled: nothing has one
-- subconninfo: nothing has one
-- subslotname: nothing has one
-- subsynccommit: nothing has one
-- subpublications: nothing has one
CREATE VIEW pg_catalog.pg_subscription AS
SELECT
    NULL::oid AS oid,
    NULL::oid AS subdbid,
    NULL::text AS subname,
    NULL::oid AS subowner,
    NULL::boolean AS subenabled,
    NULL::text AS subconninfo,
    NULL::text AS subslotname,
    NULL::text AS subsynccommit,
    NULL::text[] AS subpublications
WHERE false;
