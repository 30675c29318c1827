-- The connections to Kafka. Empty, as there is none; tools of Materialize ask for it.
--
-- id: nothing has one
-- brokers: nothing has one
-- sink_progress_topic: nothing has one
CREATE VIEW mz_catalog.mz_kafka_connections AS
SELECT
    NULL::text AS id,
    NULL::text[] AS brokers,
    NULL::text AS sink_progress_topic
WHERE false;
