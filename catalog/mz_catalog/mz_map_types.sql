-- Types of maps that users have made.
--
-- id: the type, a key of `mz_types`
-- key_id: the type of its keys, a key of `mz_types`
-- value_id: the type of its values, a key of `mz_types`
CREATE SOURCE mz_catalog.mz_map_types (
    id text NOT NULL,
    key_id text NOT NULL,
    value_id text NOT NULL
);
