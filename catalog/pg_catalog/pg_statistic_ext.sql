-- Statistics over several columns. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- stxrelid: nothing has one
-- stxname: nothing has one
-- stxnamespace: nothing has one
-- stxowner: nothing has one
-- stxstattarget: nothing has one
-- stxkeys: nothing has one
-- stxkind: nothing has one
-- stxexprs: nothing has one
CREATE VIEW pg_catalog.pg_statistic_ext AS
SELECT
    NULL::oid AS oid,
    NULL::oid AS stxrelid,
    NULL::text AS stxname,
    NULL::oid AS stxnamespace,
    NULL::oid AS stxowner,
    NULL::integer AS stxstattarget,
    NULL::smallint[] AS stxkeys,
    NULL::text[] AS stxkind,
    NULL::text AS stxexprs
WHERE false;
