-- Which object is made of which others, as PostgreSQL's tools ask for it.
--
-- classid: the number of `pg_class`, where the object is
-- objid: the object, a key of `pg_class`
-- objsubid: 0: the object as a whole
-- refclassid: the number of `pg_class`, where what it is made of is
-- refobjid: what it is made of, a key of `pg_class`
-- refobjsubid: 0: all of it
-- deptype: `n`: what it is made of cannot be dropped without it
CREATE VIEW pg_catalog.pg_depend AS
SELECT
    k.oid AS classid,
    o.oid AS objid,
    0 AS objsubid,
    k.oid AS refclassid,
    r.oid AS refobjid,
    0 AS refobjsubid,
    'n' AS deptype
FROM mz_internal.mz_object_dependencies AS d
JOIN mz_catalog.mz_objects AS o ON o.id = d.object_id
JOIN mz_catalog.mz_objects AS r ON r.id = d.referenced_object_id
CROSS JOIN (
    SELECT c.oid
    FROM mz_catalog.mz_objects AS c JOIN mz_catalog.mz_schemas AS s ON s.id = c.schema_id
    WHERE c.name = 'pg_class' AND s.name = 'pg_catalog'
) AS k
WHERE o.type <> 'type' AND r.type <> 'type';
