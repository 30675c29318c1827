-- What time zones are called in short. Each stands for one distance from UTC.
--
-- abbreviation: the abbreviation, such as `PST`
-- utc_offset: how far it is from UTC
-- dst: whether clocks are ahead for the summer
-- timezone_name: the zone whose rules it would follow: NULL
CREATE VIEW mz_catalog.mz_timezone_abbreviations AS
SELECT abbrev AS abbreviation, utc_offset, is_dst AS dst, NULL::text AS timezone_name
FROM pg_catalog.pg_timezone_abbrevs;
