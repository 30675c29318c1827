-- Labels of enumerated types. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- oid: nothing has one
-- enumtypid: nothing has one
-- enumsortorder: nothing has one
-- enumlabel: nothing has one
CREATE VIEW pg_catalog.pg_enum AS
SELECT
    NULL::oid AS oid,
    NULL::oid AS enumtypid,
    NULL::real AS enumsortorder,
    NULL::text AS enumlabel
WHERE false;
