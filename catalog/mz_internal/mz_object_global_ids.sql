-- The ids under which objects are known to dataflows: each object has one.
--
-- id: the object, a key of `mz_objects`
-- global_id: its id in plans, frontiers and shards
CREATE VIEW mz_internal.mz_object_global_ids AS
SELECT id, id AS global_id
FROM mz_catalog.mz_objects;
