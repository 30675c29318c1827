-- When the objects that there are were made. What became of those that are not there any more is not kept.
--
-- id: the object, a key of `mz_objects`
-- previous_id: NULL, as an object has one id for as long as it is there
-- object_type: what kind of object it is, as in `mz_objects`
-- event_type: `create`
-- occurred_at: when that was, by the clock of the process that made it
CREATE SOURCE mz_internal.mz_object_lifetimes (
    id text NOT NULL,
    previous_id text,
    object_type text NOT NULL,
    event_type text NOT NULL,
    occurred_at timestamp with time zone NOT NULL
);
