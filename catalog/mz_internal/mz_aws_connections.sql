-- Connections to AWS; without rows, since COPY and Spark are given what they need.
--
-- id: the connection, a key of `mz_objects`
-- endpoint: as the option of that name says
-- region: as the option of that name says
-- access_key_id: as the option of that name says
-- access_key_id_secret_id: as the option of that name says
-- secret_access_key_secret_id: as the option of that name says
-- session_token: as the option of that name says
-- session_token_secret_id: as the option of that name says
-- assume_role_arn: as the option of that name says
-- assume_role_session_name: as the option of that name says
-- principal: who asks for the role
-- external_id: what it says with that
-- example_trust_policy: a policy that allows it
CREATE VIEW mz_internal.mz_aws_connections AS
SELECT
    NULL::text AS id,
    NULL::text AS endpoint,
    NULL::text AS region,
    NULL::text AS access_key_id,
    NULL::text AS access_key_id_secret_id,
    NULL::text AS secret_access_key_secret_id,
    NULL::text AS session_token,
    NULL::text AS session_token_secret_id,
    NULL::text AS assume_role_arn,
    NULL::text AS assume_role_session_name,
    NULL::text AS principal,
    NULL::text AS external_id,
    NULL::jsonb AS example_trust_policy
WHERE false;
