-- Character sets: there is UTF-8 alone. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- character_set_catalog: nothing has one
-- character_set_schema: nothing has one
-- character_set_name: nothing has one
-- character_repertoire: nothing has one
-- form_of_use: nothing has one
-- default_collate_catalog: nothing has one
-- default_collate_schema: nothing has one
-- default_collate_name: nothing has one
CREATE VIEW information_schema.character_sets AS
SELECT
    NULL::text AS character_set_catalog,
    NULL::text AS character_set_schema,
    NULL::text AS character_set_name,
    NULL::text AS character_repertoire,
    NULL::text AS form_of_use,
    NULL::text AS default_collate_catalog,
    NULL::text AS default_collate_schema,
    NULL::text AS default_collate_name
WHERE false;
