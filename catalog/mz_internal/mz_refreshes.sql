-- How each dataflow was brought forward lately, by whatever process: one row for each hydration and each step that had something to do. The
-- latest two to four thousand are kept; other processes than the one that leads see them some seconds later.
--
-- object_id: the index or materialized view, a key of `mz_objects`
-- lower: the first time that the step covered
-- upper: the first time after those that it covered
-- kind: `hydration` or `step`
-- rows_in: how many updates of its inputs it worked on
-- rows_out: how many updates of the object came out
-- bytes_read: how many stored bytes it read, of changes and of arrangements
-- jobs: how many Spark jobs it ran
-- seconds: how long it took
-- engine: what ran it, `duckdb` in process or `spark`
-- reason: why that one was chosen
-- replica_id: the replica that did it, a key of `mz_cluster_replicas`
-- occurred_at: when it was done
CREATE SOURCE mz_internal.mz_refreshes (
    object_id text NOT NULL,
    lower mz_timestamp NOT NULL,
    upper mz_timestamp NOT NULL,
    kind text NOT NULL,
    rows_in uint8 NOT NULL,
    rows_out uint8 NOT NULL,
    bytes_read uint8 NOT NULL,
    jobs uint8 NOT NULL,
    seconds double precision NOT NULL,
    engine text NOT NULL,
    reason text NOT NULL,
    replica_id text NOT NULL,
    occurred_at timestamp with time zone NOT NULL
);
