-- The threads at work in this process, and how they fare: one that fails, whatever with, is begun anew after a pause that grows with each
-- failure. Those of the environment that the session is connected to, and those of the process as a whole.
--
-- name: what the thread does, the label `thread` of the metrics `mzsql_threads` and `mzsql_thread_restarts_total`
-- object_id: what it does that for, where there is a thread for each: an object, a replica, a shard, a server
-- status: `running`; `restarting` from a failure on until the thread has done its work once more; `failed` where it has ended for good
-- error: what it failed with; NULL while it is running
-- restarts: how often its work was begun anew
-- since: when its status became what it is
CREATE SOURCE mz_internal.mz_threads (
    name text NOT NULL,
    object_id text,
    status text NOT NULL,
    error text,
    restarts uint8 NOT NULL,
    since timestamp with time zone NOT NULL
);
