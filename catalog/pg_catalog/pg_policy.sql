-- Policies of row security. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- polname: nothing has one
-- polrelid: nothing has one
-- polcmd: nothing has one
-- polpermissive: nothing has one
-- polroles: nothing has one
-- polqual: nothing has one
-- polwithcheck: nothing has one
CREATE VIEW pg_catalog.pg_policy AS
SELECT
    NULL::oid AS oid,
    NULL::text AS polname,
    NULL::oid AS polrelid,
    NULL::text AS polcmd,
    NULL::boolean AS polpermissive,
    NULL::oid[] AS polroles,
    NULL::text AS polqual,
    NULL::text AS polwithcheck
WHERE false;
