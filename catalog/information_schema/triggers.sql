-- Triggers. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- trigger_catalog: nothing has one
-- trigger_schema: nothing has one
-- trigger_name: nothing has one
-- event_manipulation: nothing has one
-- event_object_catalog: nothing has one
-- event_object_schema: nothing has one
-- event_object_table: nothing has one
-- action_order: nothing has one
-- action_condition: nothing has one
-- action_statement: nothing has one
-- action_orientation: nothing has one
-- action_timing: nothing has one
CREATE VIEW information_schema.triggers AS
SELECT
    NULL::text AS trigger_catalog,
    NULL::text AS trigger_schema,
    NULL::text AS trigger_name,
    NULL::text AS event_manipulation,
    NULL::text AS event_object_catalog,
    NULL::text AS event_object_schema,
    NULL::text AS event_object_table,
    NULL::integer AS action_order,
    NULL::text AS action_condition,
    NULL::text AS action_statement,
    NULL::text AS action_orientation,
    NULL::text AS action_timing
WHERE false;
