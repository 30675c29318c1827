-- What time zones are called in short, as PostgreSQL's tools ask for it.
--
-- abbrev: the abbreviation, such as `PST`
-- utc_offset: how far it is from UTC
-- is_dst: whether clocks are ahead for the summer
CREATE SOURCE pg_catalog.pg_timezone_abbrevs (
    abbrev text NOT NULL,
    utc_offset interval NOT NULL,
    is_dst boolean NOT NULL
);
