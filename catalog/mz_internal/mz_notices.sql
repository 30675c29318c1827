-- What the optimizer had to remark on the plans that run of indexes and materialized views, and that somebody may want to change. They are
-- kept with the plans; a remark on an index ends with the index.
--
-- id: tells notices apart
-- notice_type: what kind of remark it is
-- message: what was found
-- hint: what could be done about it
-- action: a statement that does it; NULL where none is known
-- redacted_message: `message` without the literals of the object's definition
-- redacted_hint: `hint` without them
-- redacted_action: `action` without them
-- action_type: what language `action` is in; NULL where there is none
-- object_id: the object whose plan it is
-- created_at: when it was made; NULL, as plans are the same whenever they are made
CREATE SOURCE mz_internal.mz_notices (
    id text NOT NULL,
    notice_type text NOT NULL,
    message text NOT NULL,
    hint text NOT NULL,
    action text,
    redacted_message text,
    redacted_hint text,
    redacted_action text,
    action_type text,
    object_id text,
    created_at timestamp with time zone
);
