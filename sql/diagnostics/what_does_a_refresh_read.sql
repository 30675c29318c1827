-- What did the last refreshes read and write, and how long did they take?
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
