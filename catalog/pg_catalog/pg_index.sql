-- The indexes, as PostgreSQL's tools ask for them. None of them is unique: an index keeps no key.
--
-- indexrelid: the index, a key of `pg_class`
-- indrelid: what it is on, a key of `pg_class`
-- indisunique: false
-- indisprimary: false
-- indimmediate: false
-- indisvalid: true
-- indisready: true
-- indislive: true
-- indisclustered: false
-- indisreplident: false
-- indkey: the places of the columns that it is on, in its order; 0 for an expression
-- indoption: for each of them 0, the order that PostgreSQL has where none is said
-- indexprs: NULL; `pg_get_indexdef` has expressions
-- indpred: NULL: an index holds every row
-- indnatts: how many columns and expressions it is on
-- indnkeyatts: as many: it has no others
CREATE VIEW pg_catalog.pg_index AS
SELECT
    i.indexrelid,
    i.indrelid,
    false AS indisunique,
    false AS indisprimary,
    false AS indimmediate,
    true AS indisvalid,
    true AS indisready,
    true AS indislive,
    false AS indisclustered,
    false AS indisreplident,
    array_to_string(i.indkey, ' ')::int2vector AS indkey,
    array_to_string(i.indoption, ' ')::int2vector AS indoption,
    NULL::text AS indexprs,
    NULL::text AS indpred,
    i.indnatts,
    i.indnatts AS indnkeyatts
FROM mz_internal.mz_pg_index AS i;
