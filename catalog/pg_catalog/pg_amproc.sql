-- Functions of operator families: there are none. Tools ask for the relation all the same.
--
-- oid: nothing has one
-- amprocfamily: nothing has one
-- amproclefttype: nothing has one
-- amprocrighttype: nothing has one
-- amprocnum: nothing has one
-- amproc: nothing has one
CREATE VIEW pg_catalog.pg_amproc AS
SELECT
    NULL::oid AS oid,
    NULL::oid AS amprocfamily,
    NULL::oid AS amproclefttype,
    NULL::oid AS amprocrighttype,
    NULL::smallint AS amprocnum,
    NULL::oid AS amproc
WHERE false;
