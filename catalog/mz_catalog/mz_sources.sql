-- The relations that something outside of SQL fills; so far these are the builtin ones that the system fills.
--
-- id: the source's id, the key of this relation
-- oid: the number by which PostgreSQL's tools know it
-- schema_id: the schema it is in, a key of `mz_schemas`
-- name: the source's name within its schema
-- type: what fills it: `system`
-- connection_id: NULL, as what the system fills has no connection
-- size: NULL, as it runs on no cluster
-- envelope_type: NULL, as nothing is decoded; so are the formats
-- key_format: NULL
-- value_format: NULL
-- cluster_id: NULL, as it runs on no cluster
-- owner_id: the role that owns it, a key of `mz_roles`
-- privileges: who was granted what on it, as `grantee=letters/grantor`; nothing before the sign is everybody
-- create_sql: the statement that makes the source
-- redacted_create_sql: `create_sql` without the literals in it
CREATE SOURCE mz_catalog.mz_sources (
    id text NOT NULL,
    oid oid NOT NULL,
    schema_id text NOT NULL,
    name text NOT NULL,
    type text NOT NULL,
    connection_id text,
    size text,
    envelope_type text,
    key_format text,
    value_format text,
    cluster_id text,
    owner_id text NOT NULL,
    privileges mz_aclitem[] NOT NULL,
    create_sql text,
    redacted_create_sql text
);
