-- Locks. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- locktype: nothing has one
-- database: nothing has one
-- relation: nothing has one
-- page: nothing has one
-- tuple: nothing has one
-- virtualxid: nothing has one
-- classid: nothing has one
-- objid: nothing has one
-- objsubid: nothing has one
-- virtualtransaction: nothing has one
-- pid: nothing has one
-- mode: nothing has one
-- granted: nothing has one
-- fastpath: nothing has one
-- waitstart: nothing has one
CREATE VIEW pg_catalog.pg_locks AS
SELECT
    NULL::text AS locktype,
    NULL::oid AS database,
    NULL::oid AS relation,
    NULL::integer AS page,
    NULL::smallint AS tuple,
    NULL::text AS virtualxid,
    NULL::oid AS classid,
    NULL::oid AS objid,
    NULL::smallint AS objsubid,
    NULL::text AS virtualtransaction,
    NULL::integer AS pid,
    NULL::text AS mode,
    NULL::boolean AS granted,
    NULL::boolean AS fastpath,
    NULL::timestamptz AS waitstart
WHERE false;
