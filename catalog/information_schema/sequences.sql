-- Sequences: there are none. Tools ask for the relation all the same.
--
-- sequence_catalog: nothing has one
-- sequence_schema: nothing has one
-- sequence_name: nothing has one
-- data_type: nothing has one
-- numeric_precision: nothing has one
-- numeric_precision_radix: nothing has one
-- numeric_scale: nothing has one
-- start_value: nothing has one
-- minimum_value: nothing has one
-- maximum_value: nothing has one
-- increment: nothing has one
-- cycle_option: nothing has one
CREATE VIEW information_schema.sequences AS
SELECT
    NULL::text AS sequence_catalog,
    NULL::text AS sequence_schema,
    NULL::text AS sequence_name,
    NULL::text AS data_type,
    NULL::integer AS numeric_precision,
    NULL::integer AS numeric_precision_radix,
    NULL::integer AS numeric_scale,
    NULL::text AS start_value,
    NULL::text AS minimum_value,
    NULL::text AS maximum_value,
    NULL::text AS increment,
    NULL::text AS cycle_option
WHERE false;
