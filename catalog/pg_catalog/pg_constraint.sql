-- Constraints. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- conname: nothing has one
-- connamespace: nothing has one
-- contype: nothing has one
-- condeferrable: nothing has one
-- condeferred: nothing has one
-- convalidated: nothing has one
-- conrelid: nothing has one
-- contypid: nothing has one
-- conindid: nothing has one
-- conparentid: nothing has one
-- confrelid: nothing has one
-- confupdtype: nothing has one
-- confdeltype: nothing has one
-- confmatchtype: nothing has one
-- conislocal: nothing has one
-- coninhcount: nothing has one
-- connoinherit: nothing has one
-- conkey: nothing has one
-- confkey: nothing has one
-- conbin: nothing has one
-- consrc: nothing has one
CREATE VIEW pg_catalog.pg_constraint AS
SELECT
    NULL::oid AS oid,
    NULL::text AS conname,
    NULL::oid AS connamespace,
    NULL::text AS contype,
    NULL::boolean AS condeferrable,
    NULL::boolean AS condeferred,
    NULL::boolean AS convalidated,
    NULL::oid AS conrelid,
    NULL::oid AS contypid,
    NULL::oid AS conindid,
    NULL::oid AS conparentid,
    NULL::oid AS confrelid,
    NULL::text AS confupdtype,
    NULL::text AS confdeltype,
    NULL::text AS confmatchtype,
    NULL::boolean AS conislocal,
    NULL::integer AS coninhcount,
    NULL::boolean AS connoinherit,
    NULL::smallint[] AS conkey,
    NULL::smallint[] AS confkey,
    NULL::text AS conbin,
    NULL::text AS consrc
WHERE false;
