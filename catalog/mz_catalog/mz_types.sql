-- The types that columns and values can have.
--
-- id: the type's id, the key of this relation
-- oid: the number by which PostgreSQL's tools know it
-- schema_id: the schema it is in, a key of `mz_schemas`
-- name: the type's name
-- category: `boolean`, `numeric`, `string`, `date-time`, `timespan`, `array`, `list`, `map`, `pseudo` or `user-defined`
-- owner_id: the role that owns it, a key of `mz_roles`
-- privileges: who was granted what on it, as `grantee=letters/grantor`; nothing before the sign is everybody
-- create_sql: the statement that makes the type; NULL where it is built in
-- redacted_create_sql: `create_sql` without the literals in it
CREATE SOURCE mz_catalog.mz_types (
    id text NOT NULL,
    oid oid NOT NULL,
    schema_id text NOT NULL,
    name text NOT NULL,
    category text NOT NULL,
    owner_id text NOT NULL,
    privileges mz_aclitem[] NOT NULL,
    create_sql text,
    redacted_create_sql text
);
