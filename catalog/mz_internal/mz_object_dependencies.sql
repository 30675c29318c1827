-- Which object's definition names which.
--
-- object_id: the object, a key of `mz_objects`
-- referenced_object_id: an object that its definition names, a key of `mz_objects`
CREATE SOURCE mz_internal.mz_object_dependencies (
    object_id text NOT NULL,
    referenced_object_id text NOT NULL
);
