-- Rules that rewrite queries, beside those of views: there are none. Tools ask for the relation all the same.
--
-- schemaname: nothing has one
-- tablename: nothing has one
-- rulename: nothing has one
-- definition: nothing has one
CREATE VIEW pg_catalog.pg_rules AS
SELECT
    NULL::text AS schemaname,
    NULL::text AS tablename,
    NULL::text AS rulename,
    NULL::text AS definition
WHERE false;
