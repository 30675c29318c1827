-- What was granted on the system as a whole.
--
-- privileges: `grantee=letters/grantor`; nothing before the sign is everybody
CREATE SOURCE mz_catalog.mz_system_privileges (
    privileges text NOT NULL
);
