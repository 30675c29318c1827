-- Triggers on events. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- evtname: nothing has one
-- evtevent: nothing has one
-- evtowner: nothing has one
-- evtfoid: nothing has one
-- evtenabled: nothing has one
-- evttags: nothing has one
CREATE VIEW pg_catalog.pg_event_trigger AS
SELECT
    NULL::oid AS oid,
    NULL::text AS evtname,
    NULL::text AS evtevent,
    NULL::oid AS evtowner,
    NULL::oid AS evtfoid,
    NULL::text AS evtenabled,
    NULL::text[] AS evttags
WHERE false;
