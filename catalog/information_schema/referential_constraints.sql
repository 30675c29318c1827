-- Foreign keys. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- constraint_catalog: nothing has one
-- constraint_schema: nothing has one
-- constraint_name: nothing has one
-- unique_constraint_catalog: nothing has one
-- unique_constraint_schema: nothing has one
-- unique_constraint_name: nothing has one
-- match_option: nothing has one
-- update_rule: nothing has one
-- delete_rule: nothing has one
CREATE VIEW information_schema.referential_constraints AS
SELECT
    NULL::text AS constraint_catalog,
    NULL::text AS constraint_schema,
    NULL::text AS constraint_name,
    NULL::text AS unique_constraint_catalog,
    NULL::text AS unique_constraint_schema,
    NULL::text AS unique_constraint_name,
    NULL::text AS match_option,
    NULL::text AS update_rule,
    NULL::text AS delete_rule
WHERE false;
