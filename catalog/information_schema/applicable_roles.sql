-- Who is a member of which role, as the SQL standard describes it.
--
-- grantee: the member
-- role_name: the role
-- is_grantable: `NO`
CREATE VIEW information_schema.applicable_roles AS
SELECT m.name AS grantee, r.name AS role_name, 'NO' AS is_grantable
FROM mz_catalog.mz_role_members AS k
JOIN mz_catalog.mz_roles AS r ON r.id = k.role_id
JOIN mz_catalog.mz_roles AS m ON m.id = k.member;
