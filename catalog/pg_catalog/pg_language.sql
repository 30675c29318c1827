-- Procedural languages. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- lanname: nothing has one
-- lanowner: nothing has one
-- lanispl: nothing has one
-- lanpltrusted: nothing has one
-- lanplcallfoid: nothing has one
-- laninline: nothing has one
-- lanvalidator: nothing has one
-- lanacl: nothing has one
CREATE VIEW pg_catalog.pg_language AS
SELECT
    NULL::oid AS oid,
    NULL::text AS lanname,
    NULL::oid AS lanowner,
    NULL::boolean AS lanispl,
    NULL::boolean AS lanpltrusted,
    NULL::oid AS lanplcallfoid,
    NULL::oid AS laninline,
    NULL::oid AS lanvalidator,
    NULL::text[] AS lanacl
WHERE false;
