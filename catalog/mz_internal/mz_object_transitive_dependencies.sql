-- Which object needs which, by itself or through others.
--
-- object_id: the object, a key of `mz_objects`
-- referenced_object_id: an object that it cannot be without, a key of `mz_objects`
CREATE SOURCE mz_internal.mz_object_transitive_dependencies (
    object_id text NOT NULL,
    referenced_object_id text NOT NULL
);
