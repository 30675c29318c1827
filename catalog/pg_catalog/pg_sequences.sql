-- Sequences: there are none. Tools ask for the relation all the same.
--
-- schemaname: nothing has one
-- sequencename: nothing has one
-- sequenceowner: nothing has one
-- data_type: nothing has one
-- start_value: nothing has one
-- min_value: nothing has one
-- max_value: nothing has one
-- increment_by: nothing has one
-- cycle: nothing has one
-- cache_size: nothing has one
-- last_value: nothing has one
CREATE VIEW pg_catalog.pg_sequences AS
SELECT
    NULL::text AS schemaname,
    NULL::text AS sequencename,
    NULL::text AS sequenceowner,
    NULL::text AS data_type,
    NULL::bigint AS start_value,
    NULL::bigint AS min_value,
    NULL::bigint AS max_value,
    NULL::bigint AS increment_by,
    NULL::boolean AS cycle,
    NULL::bigint AS cache_size,
    NULL::bigint AS last_value
WHERE false;
