-- Foreign tables. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- ftrelid: nothing has one
-- ftserver: nothing has one
-- ftoptions: nothing has one
CREATE VIEW pg_catalog.pg_foreign_table AS
SELECT
    NULL::oid AS ftrelid,
    NULL::oid AS ftserver,
    NULL::text[] AS ftoptions
WHERE false;
