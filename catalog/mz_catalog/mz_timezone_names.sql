-- The names of time zones.
--
-- name: the zone's name, such as `Europe/Paris`
CREATE SOURCE mz_catalog.mz_timezone_names (
    name text NOT NULL
);
