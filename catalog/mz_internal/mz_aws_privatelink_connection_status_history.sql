-- How connections by AWS PrivateLink have been; without rows, since there are none.
--
-- occurred_at: when
-- connection_id: the connection, a key of `mz_objects`
-- status: what it became
CREATE VIEW mz_internal.mz_aws_privatelink_connection_status_history AS
SELECT
    NULL::timestamptz AS occurred_at,
    NULL::text AS connection_id,
    NULL::text AS status
WHERE false;
