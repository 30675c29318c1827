-- What statements have made, changed and dropped: the latest thousand of such events, written with what they tell of.
--
-- id: the event's number; later ones have higher ones
-- event_type: `create`, `alter`, `drop`, `grant`, `revoke` or `comment`
-- object_type: what kind of thing that was done to: `table`, `view`, `materialized-view`, `index`, `type`, `cluster`, `cluster-replica`,
--     `schema`, `database`, `role`, or `system`: a setting
-- details: what tells the thing from others: its id and its names; of an `alter` what was changed
-- user: the role whose statement it was
-- occurred_at: when that was, by the clock of the process that did it
CREATE SOURCE mz_catalog.mz_audit_events (
    id uint8 NOT NULL,
    event_type text NOT NULL,
    object_type text NOT NULL,
    details jsonb NOT NULL,
    "user" text,
    occurred_at timestamp with time zone NOT NULL
);
