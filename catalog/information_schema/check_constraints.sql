-- Constraints that check rows: there are none. Tools ask for the relation all the same.
--
-- constraint_catalog: nothing has one
-- constraint_schema: nothing has one
-- constraint_name: nothing has one
-- check_clause: nothing has one
CREATE VIEW information_schema.check_constraints AS
SELECT
    NULL::text AS constraint_catalog,
    NULL::text AS constraint_schema,
    NULL::text AS constraint_name,
    NULL::text AS check_clause
WHERE false;
