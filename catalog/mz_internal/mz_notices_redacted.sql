-- `mz_notices` without the literals of the objects' definitions.
--
-- id: tells notices apart
-- notice_type: what kind of remark it is
-- message: what was found
-- hint: what could be done about it
-- action: a statement that does it; NULL where none is known
-- action_type: what language `action` is in; NULL where there is none
-- object_id: the object whose plan it is
-- created_at: when it was made; NULL, as plans are the same whenever they are made
CREATE VIEW mz_internal.mz_notices_redacted AS
SELECT
    id,
    notice_type,
    coalesce(redacted_message, message) AS message,
    coalesce(redacted_hint, hint) AS hint,
    coalesce(redacted_action, action) AS action,
    action_type,
    object_id,
    created_at
FROM mz_internal.mz_notices;
