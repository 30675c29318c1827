-- Who is a member of which role, as PostgreSQL's tools ask for it.
--
-- roleid: the role's number
-- member: the member's number
-- grantor: the number of the role that made it a member: not kept, so that of the role itself
-- admin_option: false
-- inherit_option: true: a member has the role's privileges
-- set_option: true: a member may become the role
CREATE VIEW pg_catalog.pg_auth_members AS
SELECT r.oid AS roleid, m.oid AS member, r.oid AS grantor, false AS admin_option, true AS inherit_option, true AS set_option
FROM mz_catalog.mz_role_members AS k
JOIN mz_catalog.mz_roles AS r ON r.id = k.role_id
JOIN mz_catalog.mz_roles AS m ON m.id = k.member;
