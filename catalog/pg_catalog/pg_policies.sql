-- Policies on rows: there are none. Tools ask for the relation all the same.
--
-- schemaname: nothing has one
-- tablename: nothing has one
-- policyname: nothing has one
-- permissive: nothing has one
-- roles: nothing has one
-- cmd: nothing has one
-- qual: nothing has one
-- with_check: nothing has one
CREATE VIEW pg_catalog.pg_policies AS
SELECT
    NULL::text AS schemaname,
    NULL::text AS tablename,
    NULL::text AS policyname,
    NULL::text AS permissive,
    NULL::text[] AS roles,
    NULL::text AS cmd,
    NULL::text AS qual,
    NULL::text AS with_check
WHERE false;
