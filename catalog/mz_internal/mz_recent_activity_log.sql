-- The statements that sessions of this process have run lately, those that are under way too: the latest thousand, or fewer where their
-- texts are long. A text, an error, or a setting of the session's, that is longer than ten thousand characters is cut, and says how much
-- is left out.
--
-- execution_id: tells it from others
-- sample_rate: 1, as every statement is recorded
-- cluster_id: the session's cluster, a key of `mz_clusters`; NULL where there is none of that name now
-- application_name: what the session says that it is
-- cluster_name: the session's cluster, by the name that it had
-- database_name: the session's database
-- search_path: the session's schemas
-- transaction_isolation: the session's isolation
-- execution_timestamp: the time that it has read at; NULL where it has read at none
-- mz_version: the version of the program
-- began_at: when it began
-- finished_at: when it had ended; NULL where it has not
-- finished_status: `success`, `error` or `canceled`; NULL where it has not ended
-- error_message: what it has failed with; NULL where it has not
-- result_size: the bytes of the rows that it has answered; NULL where it has none, or they come later
-- rows_returned: how many they are; NULL likewise
-- execution_strategy: of a query `fast-path` where an index has answered it, `constant` where it reads nothing that has a time, else
--     `standard`; NULL where no query was answered
-- session_id: the session, a key of `mz_sessions`
-- statement_type: what kind of statement it is, in lower case: `select`, `create_table`
-- connected_at: when the session began
-- authenticated_user: the session's role
-- sql: its text
CREATE SOURCE mz_internal.mz_recent_activity_log (
    execution_id uuid NOT NULL,
    sample_rate double precision NOT NULL,
    cluster_id text,
    application_name text NOT NULL,
    cluster_name text,
    database_name text NOT NULL,
    search_path text[] NOT NULL,
    transaction_isolation text NOT NULL,
    execution_timestamp uint8,
    mz_version text NOT NULL,
    began_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    finished_status text,
    error_message text,
    result_size bigint,
    rows_returned bigint,
    execution_strategy text,
    session_id uuid,
    statement_type text NOT NULL,
    connected_at timestamp with time zone,
    authenticated_user text NOT NULL,
    sql text NOT NULL
);
