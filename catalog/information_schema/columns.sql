-- The columns of the relations in `information_schema.tables`, as the SQL standard describes them.
--
-- table_catalog: the database
-- table_schema: the schema that the relation is in
-- table_name: the relation's name
-- column_name: the column's name
-- ordinal_position: its place in the relation, counted from 1
-- column_default: its default; NULL where it has none
-- is_nullable: `YES` or `NO`
-- data_type: its type, without modifiers
-- character_maximum_length: of a `varchar(n)` or `char(n)` its n; NULL otherwise
-- numeric_precision: NULL
-- numeric_scale: NULL
-- udt_catalog: the session's database
-- udt_schema: the schema that the type is in
-- udt_name: the type's name, as in `mz_types`
-- collation_name: NULL
-- domain_name: NULL
-- is_identity: `NO`
-- identity_generation: NULL
-- is_generated: `NEVER`
-- generation_expression: NULL
-- is_updatable: `YES` of a table's, else `NO`
CREATE VIEW information_schema.columns AS
SELECT
    coalesce(r.database_name, current_database()) AS table_catalog,
    r.schema_name AS table_schema,
    r.relname AS table_name,
    c.name AS column_name,
    c.position::integer AS ordinal_position,
    c."default" AS column_default,
    CASE WHEN c.nullable THEN 'YES' ELSE 'NO' END AS is_nullable,
    c.type AS data_type,
    CASE
        WHEN c.type IN ('character', 'character varying') AND c.type_mod > 4 THEN c.type_mod - 4
    END AS character_maximum_length,
    NULL::integer AS numeric_precision,
    NULL::integer AS numeric_scale,
    current_database() AS udt_catalog,
    coalesce(t.schema_name, 'pg_catalog') AS udt_schema,
    coalesce(t.typname, c.type) AS udt_name,
    NULL::text AS collation_name,
    NULL::text AS domain_name,
    'NO' AS is_identity,
    NULL::text AS identity_generation,
    'NEVER' AS is_generated,
    NULL::text AS generation_expression,
    CASE WHEN r.type = 'table' THEN 'YES' ELSE 'NO' END AS is_updatable
FROM mz_catalog.mz_columns AS c
JOIN mz_internal.mz_pg_class AS r ON r.id = c.id
LEFT JOIN mz_internal.mz_pg_type AS t ON t.oid = c.type_oid
WHERE r.database_name IS NULL OR r.database_name = current_database();
