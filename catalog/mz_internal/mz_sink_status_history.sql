-- How sinks have been; without rows, since changes are read by SUBSCRIBE, COPY and Spark.
--
-- occurred_at: when
-- sink_id: the sink, a key of `mz_objects`
-- status: what it became
-- error: what failed, if anything
-- details: more of that
-- replica_id: the replica that said so
CREATE VIEW mz_internal.mz_sink_status_history AS
SELECT
    NULL::timestamptz AS occurred_at,
    NULL::text AS sink_id,
    NULL::text AS status,
    NULL::text AS error,
    NULL::jsonb AS details,
    NULL::text AS replica_id
WHERE false;
