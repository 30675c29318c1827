-- Which role is a member of which, by their names, as SHOW ROLE MEMBERSHIP has it.
--
-- role: the role
-- member: the role that is a member of it
-- grantor: the role that memberships are granted in the name of
CREATE VIEW mz_internal.mz_show_role_members AS
SELECT r.name AS role, m.name AS member, g.name AS grantor
FROM mz_catalog.mz_role_members AS k
JOIN mz_catalog.mz_roles AS r ON r.id = k.role_id
JOIN mz_catalog.mz_roles AS m ON m.id = k.member
JOIN mz_catalog.mz_roles AS g ON g.id = k.grantor;
