-- Which object needs which, by itself or through others.
--
-- object_id: the object, a key of `mz_objects`
-- referenced_object_id: an object that it cannot be without, a key of `mz_objects`
CREATE VIEW mz_internal.mz_object_transitive_dependencies AS
WITH MUTUALLY RECURSIVE
    needs (object_id text, referenced_object_id text) AS (
        SELECT object_id, referenced_object_id FROM mz_internal.mz_object_dependencies
        UNION
        SELECT n.object_id, d.referenced_object_id
        FROM needs AS n JOIN mz_internal.mz_object_dependencies AS d ON d.object_id = n.referenced_object_id
    )
SELECT object_id, referenced_object_id FROM needs;
