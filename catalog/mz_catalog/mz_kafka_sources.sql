-- The sources from Kafka. Empty, as there is none; tools of Materialize ask for it.
--
-- id: nothing has one
-- group_id_prefix: nothing has one
-- topic: nothing has one
CREATE VIEW mz_catalog.mz_kafka_sources AS
SELECT
    NULL::text AS id,
    NULL::text AS group_id_prefix,
    NULL::text AS topic
WHERE false;
