-- The defaults of columns, as PostgreSQL's tools ask for them.
--
-- oid: NULL: a default has no number of its own
-- adrelid: the relation, a key of `pg_class`
-- adnum: the column's place in it
-- adbin: the default
-- adsrc: the default
CREATE VIEW pg_catalog.pg_attrdef AS
SELECT NULL::oid AS oid, o.oid AS adrelid, c.position::smallint AS adnum, c."default" AS adbin, c."default" AS adsrc
FROM mz_catalog.mz_columns AS c JOIN mz_catalog.mz_objects AS o ON o.id = c.id
WHERE c."default" IS NOT NULL;
