-- Triggers. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- tgrelid: nothing has one
-- tgparentid: nothing has one
-- tgname: nothing has one
-- tgfoid: nothing has one
-- tgtype: nothing has one
-- tgenabled: nothing has one
-- tgisinternal: nothing has one
-- tgconstrrelid: nothing has one
-- tgconstrindid: nothing has one
-- tgconstraint: nothing has one
-- tgdeferrable: nothing has one
-- tginitdeferred: nothing has one
-- tgnargs: nothing has one
CREATE VIEW pg_catalog.pg_trigger AS
SELECT
    NULL::oid AS oid,
    NULL::oid AS tgrelid,
    NULL::oid AS tgparentid,
    NULL::text AS tgname,
    NULL::oid AS tgfoid,
    NULL::smallint AS tgtype,
    NULL::text AS tgenabled,
    NULL::boolean AS tgisinternal,
    NULL::oid AS tgconstrrelid,
    NULL::oid AS tgconstrindid,
    NULL::oid AS tgconstraint,
    NULL::boolean AS tgdeferrable,
    NULL::boolean AS tginitdeferred,
    NULL::smallint AS tgnargs
WHERE false;
