-- Operators of operator families: there are none. Tools ask for the relation all the same.
--
-- oid: nothing has one
-- amopfamily: nothing has one
-- amoplefttype: nothing has one
-- amoprighttype: nothing has one
-- amopstrategy: nothing has one
-- amoppurpose: nothing has one
-- amopopr: nothing has one
-- amopmethod: nothing has one
-- amopsortfamily: nothing has one
CREATE VIEW pg_catalog.pg_amop AS
SELECT
    NULL::oid AS oid,
    NULL::oid AS amopfamily,
    NULL::oid AS amoplefttype,
    NULL::oid AS amoprighttype,
    NULL::smallint AS amopstrategy,
    NULL::text AS amoppurpose,
    NULL::oid AS amopopr,
    NULL::oid AS amopmethod,
    NULL::oid AS amopsortfamily
WHERE false;
