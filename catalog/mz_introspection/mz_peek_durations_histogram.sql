-- How long the queries took that this process has answered since it began, by powers of two.
--
-- type: `index` where an index answered them, else `persist`
-- duration_ns: nanoseconds that they took at most, and more than half of it
-- count: how many
CREATE SOURCE mz_introspection.mz_peek_durations_histogram (
    type text NOT NULL,
    duration_ns uint8 NOT NULL,
    count numeric NOT NULL
);
