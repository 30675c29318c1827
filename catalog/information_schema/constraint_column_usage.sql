-- Columns that constraints are on. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- table_catalog: nothing has one
-- table_schema: nothing has one
-- table_name: nothing has one
-- column_name: nothing has one
-- constraint_catalog: nothing has one
-- constraint_schema: nothing has one
-- constraint_name: nothing has one
CREATE VIEW information_schema.constraint_column_usage AS
SELECT
    NULL::text AS table_catalog,
    NULL::text AS table_schema,
    NULL::text AS table_name,
    NULL::text AS column_name,
    NULL::text AS constraint_catalog,
    NULL::text AS constraint_schema,
    NULL::text AS constraint_name
WHERE false;
