-- The relations and indexes that the session's database shows, as PostgreSQL's tools ask for them.
--
-- oid: the object's number, as in `mz_objects`
-- relname: the object's name
-- relnamespace: the schema it is in, a key of `pg_namespace`
-- reltype: 0: relations have no types of rows
-- reloftype: 0
-- relowner: the number of the role that owns it
-- relam: 0: there are no access methods
-- reltablespace: 0
-- reltuples: -1: how many rows there are is not known
-- relpages: 0: nothing is kept in pages
-- reltoastrelid: 0
-- relhasindex: whether there is an index on it
-- relpersistence: `p`: all of them are permanent
-- relkind: `r` for a table or a source, `i` for an index, `v` for a view, `m` for a materialized view
-- relnatts: how many columns it has
-- relchecks: 0: there are no checks
-- relhasrules: false
-- relhastriggers: false
-- relhassubclass: false
-- relrowsecurity: false
-- relforcerowsecurity: false
-- relreplident: `d`
-- relispartition: false
-- relhasoids: false
-- reloptions: NULL
-- relacl: NULL: `mz_objects` has the privileges
-- relpartbound: NULL: nothing is a part of another
CREATE VIEW pg_catalog.pg_class AS
SELECT
    o.oid,
    o.relname,
    o.relnamespace,
    0::oid AS reltype,
    0::oid AS reloftype,
    o.relowner,
    0::oid AS relam,
    0::oid AS reltablespace,
    -1::real AS reltuples,
    0::integer AS relpages,
    0::oid AS reltoastrelid,
    o.relhasindex,
    'p'::"char" AS relpersistence,
    o.relkind,
    o.relnatts,
    0::smallint AS relchecks,
    false AS relhasrules,
    false AS relhastriggers,
    false AS relhassubclass,
    false AS relrowsecurity,
    false AS relforcerowsecurity,
    'd'::"char" AS relreplident,
    false AS relispartition,
    false AS relhasoids,
    NULL::text[] AS reloptions,
    NULL::text[] AS relacl,
    NULL::text AS relpartbound
FROM mz_internal.mz_pg_class AS o
WHERE o.database_name IS NULL OR o.database_name = current_database();
