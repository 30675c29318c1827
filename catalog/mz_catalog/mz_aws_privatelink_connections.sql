-- The connections over AWS PrivateLink. Empty, as there is none; tools of Materialize ask for it.
--
-- id: nothing has one
-- principal: nothing has one
CREATE VIEW mz_catalog.mz_aws_privatelink_connections AS
SELECT
    NULL::text AS id,
    NULL::text AS principal
WHERE false;
