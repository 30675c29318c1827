-- Who is a member of which role, as PostgreSQL's tools ask for it.
--
-- roleid: the role's number
-- member: the member's number
-- grantor: the number of the role that made it a member: not kept, so that of the role itself
-- admin_option: false
CREATE VIEW pg_catalog.pg_auth_members AS
SELECT r.oid AS roleid, m.oid AS member, r.oid AS grantor, false AS admin_option
FROM mz_catalog.mz_role_members AS k
JOIN mz_catalog.mz_roles AS r ON r.id = k.role_id
JOIN mz_catalog.mz_roles AS m ON m.id = k.member;
