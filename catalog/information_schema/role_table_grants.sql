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
SELECT grantor, grantee, table_catalog, table_schema, table_name, privilege_type, is_grantable, with_hierarchy
FROM information_schema.table_privileges;
