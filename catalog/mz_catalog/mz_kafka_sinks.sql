-- The sinks into Kafka. Empty, as there is none; tools of Materialize ask for it.
--
-- id: nothing has one
-- topic: nothing has one
CREATE VIEW mz_catalog.mz_kafka_sinks AS
SELECT
    NULL::text AS id,
    NULL::text AS topic
WHERE false;
