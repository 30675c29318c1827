-- The functions that can be called, a row for each overload.
--
-- id: the overload's id, the key of this relation
-- oid: its number
-- schema_id: the schema it is in, a key of `mz_schemas`
-- name: the function's name
-- argument_type_ids: the types of its arguments, keys of `mz_types`
-- variadic_argument_type_id: the type of further arguments, of which there may be any number
-- return_type_id: the type of what it gives, a key of `mz_types`
-- returns_set: whether it gives rows
-- owner_id: the role that owns it, a key of `mz_roles`
CREATE SOURCE mz_catalog.mz_functions (
    id text NOT NULL,
    oid oid NOT NULL,
    schema_id text NOT NULL,
    name text NOT NULL,
    argument_type_ids text[] NOT NULL,
    variadic_argument_type_id text,
    return_type_id text,
    returns_set boolean NOT NULL,
    owner_id text NOT NULL
);
