-- The keywords of SQL, as `pg_get_keywords()` has them.
--
-- word: the keyword, in lower case
-- catcode: how it is reserved: `U` not, `C` not for functions and types, `T` but for functions and types, `R` wholly
-- barelabel: whether it may be a column's label without AS
-- catdesc: what `catcode` means
-- baredesc: what `barelabel` means
CREATE SOURCE mz_internal.mz_keywords (
    word text NOT NULL,
    catcode text NOT NULL,
    barelabel boolean NOT NULL,
    catdesc text NOT NULL,
    baredesc text NOT NULL
);
