-- Constraints of tables. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- constraint_catalog: nothing has one
-- constraint_schema: nothing has one
-- constraint_name: nothing has one
-- table_catalog: nothing has one
-- table_schema: nothing has one
-- table_name: nothing has one
-- constraint_type: nothing has one
-- is_deferrable: nothing has one
-- initially_deferred: nothing has one
-- enforced: nothing has one
-- nulls_distinct: nothing has one
CREATE VIEW information_schema.table_constraints AS
SELECT
    NULL::text AS constraint_catalog,
    NULL::text AS constraint_schema,
    NULL::text AS constraint_name,
    NULL::text AS table_catalog,
    NULL::text AS table_schema,
    NULL::text AS table_name,
    NULL::text AS constraint_type,
    NULL::text AS is_deferrable,
    NULL::text AS initially_deferred,
    NULL::text AS enforced,
    NULL::text AS nulls_distinct
WHERE false;
