-- Sequences. Empty, as there is none; clients of PostgreSQL ask for it.
--
-- seqrelid: nothing has one
-- seqtypid: nothing has one
-- seqstart: nothing has one
-- seqincrement: nothing has one
-- seqmax: nothing has one
-- seqmin: nothing has one
-- seqcache: nothing has one
-- seqcycle: nothing has one
CREATE VIEW pg_catalog.pg_sequence AS
SELECT
    NULL::oid AS seqrelid,
    NULL::oid AS seqtypid,
    NULL::bigint AS seqstart,
    NULL::bigint AS seqincrement,
    NULL::bigint AS seqmax,
    NULL::bigint AS seqmin,
    NULL::bigint AS seqcache,
    NULL::boolean AS seqcycle
WHERE false;
