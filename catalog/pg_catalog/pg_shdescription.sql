-- Comments on databases and roles, as PostgreSQL's tools ask for them.
--
-- objoid: the number of what is commented on
-- classoid: the number of the relation of `pg_catalog` that lists it
-- description: the comment
CREATE VIEW pg_catalog.pg_shdescription AS
SELECT d.oid AS objoid, 'pg_catalog.pg_database'::regclass::oid AS classoid, c.comment AS description
FROM mz_internal.mz_comments AS c JOIN mz_catalog.mz_databases AS d ON d.id = c.id
WHERE c.object_type = 'database'
UNION ALL
SELECT r.oid, 'pg_catalog.pg_authid'::regclass::oid, c.comment
FROM mz_internal.mz_comments AS c JOIN mz_catalog.mz_roles AS r ON r.id = c.id
WHERE c.object_type = 'role';
