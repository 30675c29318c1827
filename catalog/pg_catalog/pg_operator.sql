-- The operators, as PostgreSQL's tools ask for them.
--
-- oid: the operator's number
-- oprname: the operator
-- oprnamespace: `pg_catalog`, a key of `pg_namespace`
-- oprkind: `l` where it stands before its one operand, else `b`
-- oprleft: the type of its left operand, a key of `pg_type`; 0 where there is none
-- oprright: the type of its right operand, a key of `pg_type`
-- oprresult: the type of what it gives, a key of `pg_type`
CREATE VIEW pg_catalog.pg_operator AS
SELECT
    o.oid,
    o.name AS oprname,
    s.oid AS oprnamespace,
    (CASE WHEN o.argument_type_ids[2] IS NULL THEN 'l' ELSE 'b' END)::"char" AS oprkind,
    coalesce(l.oid, 0::oid) AS oprleft,
    r.oid AS oprright,
    t.oid AS oprresult
FROM mz_catalog.mz_operators AS o
JOIN mz_catalog.mz_schemas AS s ON s.name = 'pg_catalog'
JOIN mz_catalog.mz_types AS r ON r.id = coalesce(o.argument_type_ids[2], o.argument_type_ids[1])
LEFT JOIN mz_catalog.mz_types AS l ON l.id = o.argument_type_ids[1] AND o.argument_type_ids[2] IS NOT NULL
LEFT JOIN mz_catalog.mz_types AS t ON t.id = o.return_type_id;
