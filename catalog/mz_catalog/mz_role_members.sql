-- Which role is a member of which.
--
-- role_id: the role, a key of `mz_roles`
-- member: the role that is a member of it, a key of `mz_roles`
-- grantor: the role that memberships are granted in the name of, a key of `mz_roles`
CREATE SOURCE mz_catalog.mz_role_members (
    role_id text NOT NULL,
    member text NOT NULL,
    grantor text NOT NULL
);
