-- The operators, a row for each list of operands.
--
-- oid: the operator's number
-- name: the operator
-- argument_type_ids: the types of its operands, keys of `mz_types`; an operator before its operand has one
-- return_type_id: the type of what it gives, a key of `mz_types`
CREATE SOURCE mz_catalog.mz_operators (
    oid oid NOT NULL,
    name text NOT NULL,
    argument_type_ids text[] NOT NULL,
    return_type_id text
);
