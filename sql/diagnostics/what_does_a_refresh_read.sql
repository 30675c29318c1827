-- What did the last refreshes read and write, and how long did they take?
-- How to read it: `kind` is `hydration`, which reads everything once, or `step`, which should read what has changed and what that meets:
-- steps that read far more rows than they write are those to think about. `engine` and `reason` say where it ran, and why there.
SELECT
    o.name AS object,
    r.kind,
    r.upper,
    r.rows_in,
    r.rows_out,
    r.bytes_read,
    r.jobs,
    r.seconds,
    r.engine,
    r.reason
FROM mz_internal.mz_refreshes AS r
JOIN mz_catalog.mz_objects AS o ON o.id = r.object_id
ORDER BY upper DESC, object
LIMIT 50;
