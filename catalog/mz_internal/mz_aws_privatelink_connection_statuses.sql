-- How connections by AWS PrivateLink are; without rows, since there are none.
--
-- id: the connection, a key of `mz_objects`
-- name: its name
-- last_status_change_at: since when it is so
-- status: how it is
CREATE VIEW mz_internal.mz_aws_privatelink_connection_statuses AS
SELECT
    NULL::text AS id,
    NULL::text AS name,
    NULL::timestamptz AS last_status_change_at,
    NULL::text AS status
WHERE false;
