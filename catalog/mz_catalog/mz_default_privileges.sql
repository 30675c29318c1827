-- What is granted on objects that are made later. Empty, as nothing is granted ahead.
--
-- role_id: nothing has one
-- database_id: nothing has one
-- schema_id: nothing has one
-- object_type: nothing has one
-- grantee: nothing has one
-- privileges: nothing has one
CREATE VIEW mz_catalog.mz_default_privileges AS
SELECT
    NULL::text AS role_id,
    NULL::text AS database_id,
    NULL::text AS schema_id,
    NULL::text AS object_type,
    NULL::text AS grantee,
    NULL::text AS privileges
WHERE false;
