-- Transactions prepared for a commit in two phases: there are none. Tools ask for the relation all the same.
--
-- transaction: nothing has one
-- gid: nothing has one
-- prepared: nothing has one
-- owner: nothing has one
-- database: nothing has one
CREATE VIEW pg_catalog.pg_prepared_xacts AS
SELECT
    NULL::bigint AS transaction,
    NULL::text AS gid,
    NULL::timestamp with time zone AS prepared,
    NULL::text AS owner,
    NULL::text AS database
WHERE false;
