-- Inheritance of tables. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- inhrelid: nothing has one
-- inhparent: nothing has one
-- inhseqno: nothing has one
-- inhdetachpending: nothing has one
CREATE VIEW pg_catalog.pg_inherits AS
SELECT
    NULL::oid AS inhrelid,
    NULL::oid AS inhparent,
    NULL::integer AS inhseqno,
    NULL::boolean AS inhdetachpending
WHERE false;
