-- Types of lists that users have made.
--
-- id: the type, a key of `mz_types`
-- element_id: the type of its elements, a key of `mz_types`
CREATE SOURCE mz_catalog.mz_list_types (
    id text NOT NULL,
    element_id text NOT NULL
);
