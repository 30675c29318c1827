-- Labels of security: there are none. Tools ask for the relation all the same.
--
-- objoid: nothing has one
-- classoid: nothing has one
-- objsubid: nothing has one
-- objtype: nothing has one
-- objnamespace: nothing has one
-- objname: nothing has one
-- provider: nothing has one
-- label: nothing has one
CREATE VIEW pg_catalog.pg_seclabels AS
SELECT
    NULL::oid AS objoid,
    NULL::oid AS classoid,
    NULL::integer AS objsubid,
    NULL::text AS objtype,
    NULL::oid AS objnamespace,
    NULL::text AS objname,
    NULL::text AS provider,
    NULL::text AS label
WHERE false;
