-- The time zones and how far they are from UTC now, as PostgreSQL's tools ask for them.
--
-- name: the zone's name
-- abbrev: what it is called now
-- utc_offset: how far it is from UTC now
-- is_dst: whether it has daylight saving time now
CREATE SOURCE pg_catalog.pg_timezone_names (
    name text NOT NULL,
    abbrev text NOT NULL,
    utc_offset interval NOT NULL,
    is_dst boolean NOT NULL
);
