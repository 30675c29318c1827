-- The variables that SET and ALTER SYSTEM know: what each may hold, and whether anything asks for it.
--
-- name: the variable's name
-- vartype: `bool`, `integer`, `enum` or `string`; of durations, which are kept in milliseconds, and of sizes in bytes `integer`
-- min_val: the least that it may be; NULL where it has no bound
-- max_val: the most that it may be; NULL where it has no bound
-- enumvals: what it may be, where that is a list
-- boot_val: its value where nobody has set it
-- context: who may set it: `user` by SET, `sighup` ALTER SYSTEM alone, `internal` nobody
-- heeded: whether anything asks for it; who sets one that is not is told
-- shown: its name as SHOW writes it
CREATE SOURCE mz_internal.mz_variables (
    name text NOT NULL,
    vartype text NOT NULL,
    min_val text,
    max_val text,
    enumvals text[],
    boot_val text NOT NULL,
    context text NOT NULL,
    heeded boolean NOT NULL,
    shown text NOT NULL
);
