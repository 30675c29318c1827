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
CREATE VIEW pg_catalog.pg_index AS
SELECT
    i.oid AS indexrelid,
    r.oid AS indrelid,
    false AS indisunique,
    false AS indisprimary,
    false AS indimmediate,
    true AS indisvalid,
    true AS indisready,
    true AS indislive
FROM mz_catalog.mz_indexes AS i
JOIN mz_catalog.mz_relations AS r ON r.id = i.on_id;
