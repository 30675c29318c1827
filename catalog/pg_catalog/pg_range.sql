-- The types of ranges, as PostgreSQL's tools ask for them.
--
-- rngtypid: the range's type, a key of `pg_type`
-- rngsubtype: the type of its bounds
-- rngmultitypid: 0: there are no multiranges
CREATE VIEW pg_catalog.pg_range AS
SELECT rngtypid::oid AS rngtypid, rngsubtype::oid AS rngsubtype, 0::oid AS rngmultitypid
FROM (VALUES (3904, 23), (3906, 1700), (3908, 1114), (3910, 1184), (3912, 1082), (3926, 20)) AS ranges (rngtypid, rngsubtype);
