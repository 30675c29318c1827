-- Processes that replicate to others: there are none. Tools ask for the relation all the same.
--
-- pid: nothing has one
-- usesysid: nothing has one
-- usename: nothing has one
-- application_name: nothing has one
-- client_addr: nothing has one
-- client_hostname: nothing has one
-- client_port: nothing has one
-- backend_start: nothing has one
-- state: nothing has one
-- sync_priority: nothing has one
-- sync_state: nothing has one
-- reply_time: nothing has one
CREATE VIEW pg_catalog.pg_stat_replication AS
SELECT
    NULL::integer AS pid,
    NULL::oid AS usesysid,
    NULL::text AS usename,
    NULL::text AS application_name,
    NULL::text AS client_addr,
    NULL::text AS client_hostname,
    NULL::integer AS client_port,
    NULL::timestamp with time zone AS backend_start,
    NULL::text AS state,
    NULL::integer AS sync_priority,
    NULL::text AS sync_state,
    NULL::timestamp with time zone AS reply_time
WHERE false;
