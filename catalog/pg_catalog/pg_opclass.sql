-- Classes of operators of access methods. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- opcmethod: nothing has one
-- opcname: nothing has one
-- opcnamespace: nothing has one
-- opcowner: nothing has one
-- opcfamily: nothing has one
-- opcintype: nothing has one
-- opcdefault: nothing has one
-- opckeytype: nothing has one
CREATE VIEW pg_catalog.pg_opclass AS
SELECT
    NULL::oid AS oid,
    NULL::oid AS opcmethod,
    NULL::text AS opcname,
    NULL::oid AS opcnamespace,
    NULL::oid AS opcowner,
    NULL::oid AS opcfamily,
    NULL::oid AS opcintype,
    NULL::boolean AS opcdefault,
    NULL::oid AS opckeytype
WHERE false;
