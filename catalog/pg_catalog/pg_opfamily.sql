-- Families of operators, for kinds of indexes that there are not: there are none. Tools ask for the relation all the same.
--
-- oid: nothing has one
-- opfmethod: nothing has one
-- opfname: nothing has one
-- opfnamespace: nothing has one
-- opfowner: nothing has one
CREATE VIEW pg_catalog.pg_opfamily AS
SELECT
    NULL::oid AS oid,
    NULL::oid AS opfmethod,
    NULL::text AS opfname,
    NULL::oid AS opfnamespace,
    NULL::oid AS opfowner
WHERE false;
