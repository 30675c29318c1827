-- Domains: there are none. Tools ask for the relation all the same.
--
-- domain_catalog: nothing has one
-- domain_schema: nothing has one
-- domain_name: nothing has one
-- data_type: nothing has one
-- character_maximum_length: nothing has one
-- domain_default: nothing has one
-- udt_catalog: nothing has one
-- udt_schema: nothing has one
-- udt_name: nothing has one
CREATE VIEW information_schema.domains AS
SELECT
    NULL::text AS domain_catalog,
    NULL::text AS domain_schema,
    NULL::text AS domain_name,
    NULL::text AS data_type,
    NULL::integer AS character_maximum_length,
    NULL::text AS domain_default,
    NULL::text AS udt_catalog,
    NULL::text AS udt_schema,
    NULL::text AS udt_name
WHERE false;
