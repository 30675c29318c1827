-- The functions, as the SQL standard's information schema has them.
--
-- routine_catalog: the session's database
-- routine_schema: the schema it is in
-- routine_name: the function's name
-- routine_type: `FUNCTION`
-- routine_definition: NULL: the functions are the system's own
CREATE VIEW information_schema.routines AS
SELECT
    current_database() AS routine_catalog,
    s.name AS routine_schema,
    f.name AS routine_name,
    'FUNCTION' AS routine_type,
    NULL::text AS routine_definition
FROM mz_catalog.mz_functions AS f
JOIN mz_catalog.mz_schemas AS s ON s.id = f.schema_id;
