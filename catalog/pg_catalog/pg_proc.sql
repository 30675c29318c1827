-- The functions, as PostgreSQL's tools ask for them.
--
-- oid: the overload's number, as in `mz_functions`
-- proname: the function's name
-- pronamespace: the schema it is in, a key of `pg_namespace`
-- proowner: the number of the role that owns it
-- proargdefaults: NULL: no argument has a default
-- prorettype: the type of what it gives
-- prokind: `a` for an aggregate, else `f`
-- proretset: whether it gives rows
CREATE VIEW pg_catalog.pg_proc AS
SELECT
    f.oid,
    f.name AS proname,
    s.oid AS pronamespace,
    r.oid AS proowner,
    NULL::text AS proargdefaults,
    t.oid AS prorettype,
    CASE WHEN a.oid IS NULL THEN 'f' ELSE 'a' END AS prokind,
    f.returns_set AS proretset
FROM mz_catalog.mz_functions AS f
JOIN mz_catalog.mz_schemas AS s ON s.id = f.schema_id
JOIN mz_catalog.mz_types AS t ON t.id = f.return_type_id
JOIN mz_catalog.mz_roles AS r ON r.id = f.owner_id
LEFT JOIN mz_internal.mz_aggregates AS a ON a.oid = f.oid;
