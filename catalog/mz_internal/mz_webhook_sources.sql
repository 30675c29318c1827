-- Sources that requests write; without rows, since none do.
--
-- id: the source, a key of `mz_objects`
-- name: its name
-- url: where requests go
CREATE VIEW mz_internal.mz_webhook_sources AS
SELECT
    NULL::text AS id,
    NULL::text AS name,
    NULL::text AS url
WHERE false;
