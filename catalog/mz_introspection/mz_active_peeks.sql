-- The queries that this process answers now.
--
-- id: tells it from others
-- object_id: the index or collection that it reads, or the first of several; a key of `mz_objects`
-- type: `index` where an index answers it, else `persist`
-- time: the time that it is read at
CREATE SOURCE mz_introspection.mz_active_peeks (
    id uuid NOT NULL,
    object_id text NOT NULL,
    type text NOT NULL,
    time mz_timestamp NOT NULL
);
