-- The defaults of columns, as PostgreSQL's tools ask for them.
--
-- oid: NULL: a default has no number of its own
-- adrelid: the relation, a key of `pg_class`
-- adnum: the column's place in it
-- adbin: the default
-- adsrc: the default
CREATE VIEW pg_catalog.pg_attrdef AS
SELECT NULL::oid AS oid, o.attrelid AS adrelid, o.attnum AS adnum, o.column_default AS adbin, o.column_default AS adsrc
FROM mz_internal.mz_pg_attribute AS o
WHERE o.column_default IS NOT NULL;
