-- Who was granted what on relations, as the SQL standard describes it.
--
-- grantor: the role that granted it
-- grantee: the role that has it, or `PUBLIC`
-- table_catalog: the relation's database
-- table_schema: its schema
-- table_name: its name
-- privilege_type: the privilege, such as `SELECT`
-- is_grantable: `NO`
-- with_hierarchy: `YES` for `SELECT`
CREATE VIEW information_schema.role_table_grants AS
SELECT
    grantor,
    grantee,
    database AS table_catalog,
    schema AS table_schema,
    name AS table_name,
    privilege_type,
    'NO' AS is_grantable,
    CASE privilege_type WHEN 'SELECT' THEN 'YES' ELSE 'NO' END AS with_hierarchy
FROM mz_internal.mz_show_all_privileges
WHERE object_type IN ('table', 'view', 'materialized-view');
