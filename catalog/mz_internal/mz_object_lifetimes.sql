-- When the objects that there are were made, and those were made and dropped of whom `mz_audit_events` has it.
--
-- id: the object, a key of `mz_objects`
-- previous_id: NULL, as an object has one id for as long as it is there
-- object_type: what kind of object it is, as in `mz_objects`
-- event_type: `create` or `drop`
-- occurred_at: when that was, by the clock of the process that did it
CREATE SOURCE mz_internal.mz_object_lifetimes (
    id text NOT NULL,
    previous_id text,
    object_type text NOT NULL,
    event_type text NOT NULL,
    occurred_at timestamp with time zone NOT NULL
);
