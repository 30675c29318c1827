-- The sessions of the process that answers, as PostgreSQL's tools ask for them, each with the statement that it has run last.
--
-- datid: the number of the session's database, as in `mz_databases`
-- datname: the session's database
-- pid: the session's number in this process
-- leader_pid: NULL
-- usesysid: the number of the session's role, as in `mz_roles`
-- usename: the session's role
-- application_name: what the session says that it is
-- client_addr: NULL, as sessions are within the process
-- client_hostname: NULL
-- client_port: NULL
-- backend_start: when the session began
-- xact_start: NULL
-- query_start: when its last statement began
-- state_change: when that ended, or began where it has not
-- wait_event_type: NULL
-- wait_event: NULL
-- state: `active` while a statement is under way, else `idle`
-- backend_xid: NULL
-- backend_xmin: NULL
-- query_id: NULL
-- query: the text of its last statement
-- backend_type: `client backend`
CREATE VIEW pg_catalog.pg_stat_activity AS
SELECT
    d.oid AS datid,
    d.name AS datname,
    s.connection_id::integer AS pid,
    NULL::integer AS leader_pid,
    r.oid AS usesysid,
    r.name AS usename,
    coalesce(l.application_name, '') AS application_name,
    NULL::text AS client_addr,
    NULL::text AS client_hostname,
    NULL::integer AS client_port,
    s.connected_at AS backend_start,
    NULL::timestamptz AS xact_start,
    l.began_at AS query_start,
    coalesce(l.finished_at, l.began_at) AS state_change,
    NULL::text AS wait_event_type,
    NULL::text AS wait_event,
    CASE WHEN l.execution_id IS NOT NULL AND l.finished_at IS NULL THEN 'active' ELSE 'idle' END AS state,
    NULL::text AS backend_xid,
    NULL::text AS backend_xmin,
    NULL::bigint AS query_id,
    coalesce(l.sql, '') AS query,
    'client backend' AS backend_type
FROM mz_internal.mz_sessions AS s
LEFT JOIN mz_catalog.mz_roles AS r ON r.id = s.role_id
LEFT JOIN (
    SELECT DISTINCT ON (session_id)
        session_id, execution_id, application_name, database_name, began_at, finished_at, sql
    FROM mz_internal.mz_recent_activity_log
    ORDER BY session_id, began_at DESC
) AS l ON l.session_id = s.id
LEFT JOIN mz_catalog.mz_databases AS d ON d.name = coalesce(l.database_name, current_database());
