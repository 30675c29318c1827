-- Which object's definition names which?
-- How to read it: what stands on the right cannot be dropped, without CASCADE, while what stands on the left is there.
SELECT
    o.name AS object,
    o.type AS object_type,
    r.name AS depends_on,
    r.type AS depends_on_type
FROM mz_internal.mz_object_dependencies AS d
JOIN mz_catalog.mz_objects AS o ON o.id = d.object_id
JOIN mz_catalog.mz_objects AS r ON r.id = d.referenced_object_id
ORDER BY object, depends_on;
