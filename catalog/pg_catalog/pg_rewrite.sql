-- Rules. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- rulename: nothing has one
-- ev_class: nothing has one
-- ev_type: nothing has one
-- ev_enabled: nothing has one
-- is_instead: nothing has one
-- ev_qual: nothing has one
-- ev_action: nothing has one
CREATE VIEW pg_catalog.pg_rewrite AS
SELECT
    NULL::oid AS oid,
    NULL::text AS rulename,
    NULL::oid AS ev_class,
    NULL::text AS ev_type,
    NULL::text AS ev_enabled,
    NULL::boolean AS is_instead,
    NULL::text AS ev_qual,
    NULL::text AS ev_action
WHERE false;
