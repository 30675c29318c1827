-- The types that stand for many, as arguments of functions have them.
--
-- id: the type's id, a key of `mz_types`
CREATE SOURCE mz_catalog.mz_pseudo_types (
    id text NOT NULL
);
