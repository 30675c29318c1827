-- Which dataflows fail, with what, and when are they tried again?
-- How to read it: a dataflow that fails keeps its contents and stays behind; `failures` counts since it was well last. `refused` is not
-- tried again until its definition or its inputs' indexes change. No rows: none fails.
SELECT
    o.name AS object,
    s.replica_id,
    s.status,
    s.error,
    s.failures,
    s.reason,
    s.reported_at
FROM mz_internal.mz_compute_dataflow_statuses AS s
JOIN mz_catalog.mz_objects AS o ON o.id = s.object_id
WHERE s.error IS NOT NULL
ORDER BY object, replica_id;
