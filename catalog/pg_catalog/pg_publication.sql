-- Publications of logical replication. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- pubname: nothing has one
-- pubowner: nothing has one
-- puballtables: nothing has one
-- pubinsert: nothing has one
-- pubupdate: nothing has one
-- pubdelete: nothing has one
-- pubtruncate: nothing has one
-- pubviaroot: nothing has one
CREATE VIEW pg_catalog.pg_publication AS
SELECT
    NULL::oid AS oid,
    NULL::text AS pubname,
    NULL::oid AS pubowner,
    NULL::boolean AS puballtables,
    NULL::boolean AS pubinsert,
    NULL::boolean AS pubupdate,
    NULL::boolean AS pubdelete,
    NULL::boolean AS pubtruncate,
    NULL::boolean AS pubviaroot
WHERE false;
