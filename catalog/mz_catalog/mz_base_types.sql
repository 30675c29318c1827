-- Types that hold no others.
--
-- id: the type, a key of `mz_types`
CREATE SOURCE mz_catalog.mz_base_types (
    id text NOT NULL
);
