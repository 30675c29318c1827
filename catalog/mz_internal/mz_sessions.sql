-- The sessions of this process.
--
-- id: tells a session from all others
-- connection_id: its number in this process
-- role_id: the role that it is of, a key of `mz_roles`
-- client_ip: NULL, as sessions are within the process
-- connected_at: when it began
CREATE SOURCE mz_internal.mz_sessions (
    id uuid NOT NULL,
    connection_id uint4 NOT NULL,
    role_id text,
    client_ip text,
    connected_at timestamp with time zone NOT NULL
);
