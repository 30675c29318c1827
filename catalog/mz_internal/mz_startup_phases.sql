-- Where the time went from the moment at which this process began to open the environment until all that it maintains was taken up: phases,
-- which may be beside and within each other.
--
-- phase: what was done; `complete` is when there was nothing left to take up
-- began: how many seconds after the beginning it began first
-- seconds: how many seconds were spent in it so far
-- objects: how many objects it was about
CREATE SOURCE mz_internal.mz_startup_phases (
    phase text NOT NULL,
    began double precision NOT NULL,
    seconds double precision NOT NULL,
    objects uint8 NOT NULL
);
