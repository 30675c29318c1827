-- Comments on relations, their columns, types and schemas, as PostgreSQL's tools ask for them.
--
-- objoid: the number of what is commented on
-- classoid: the number of the relation of `pg_catalog` that lists it
-- objsubid: of a column its place, else 0
-- description: the comment
CREATE VIEW pg_catalog.pg_description AS
SELECT o.oid AS objoid, 'pg_catalog.pg_class'::regclass::oid AS classoid, coalesce(c.object_sub_id, 0)::integer AS objsubid, c.comment AS description
FROM mz_internal.mz_comments AS c JOIN mz_catalog.mz_objects AS o ON o.id = c.id
WHERE c.object_type IN ('table', 'view', 'materialized-view', 'index', 'source')
UNION ALL
SELECT s.oid, 'pg_catalog.pg_namespace'::regclass::oid, 0, c.comment
FROM mz_internal.mz_comments AS c JOIN mz_catalog.mz_schemas AS s ON s.id = c.id
WHERE c.object_type = 'schema';
