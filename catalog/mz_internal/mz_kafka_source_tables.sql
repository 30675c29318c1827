-- What tables read of a Kafka; without rows, since none does.
--
-- id: the table, a key of `mz_objects`
-- topic: the topic
-- envelope_type: what a message means
-- key_format: how keys are written
-- value_format: how values are written
CREATE VIEW mz_internal.mz_kafka_source_tables AS
SELECT
    NULL::text AS id,
    NULL::text AS topic,
    NULL::text AS envelope_type,
    NULL::text AS key_format,
    NULL::text AS value_format
WHERE false;
