-- Columns of constraints. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- constraint_catalog: nothing has one
-- constraint_schema: nothing has one
-- constraint_name: nothing has one
-- table_catalog: nothing has one
-- table_schema: nothing has one
-- table_name: nothing has one
-- column_name: nothing has one
-- ordinal_position: nothing has one
-- position_in_unique_constraint: nothing has one
CREATE VIEW information_schema.key_column_usage AS
SELECT
    NULL::text AS constraint_catalog,
    NULL::text AS constraint_schema,
    NULL::text AS constraint_name,
    NULL::text AS table_catalog,
    NULL::text AS table_schema,
    NULL::text AS table_name,
    NULL::text AS column_name,
    NULL::integer AS ordinal_position,
    NULL::integer AS position_in_unique_constraint
WHERE false;
