-- Large objects: there are none. Tools ask for the relation all the same.
--
-- oid: nothing has one
-- lomowner: nothing has one
-- lomacl: nothing has one
CREATE VIEW pg_catalog.pg_largeobject_metadata AS
SELECT
    NULL::oid AS oid,
    NULL::oid AS lomowner,
    NULL::text[] AS lomacl
WHERE false;
