-- What tables read of a MySQL; without rows, since none does.
--
-- id: the table, a key of `mz_objects`
-- schema_name: the schema there
-- table_name: the table there
CREATE VIEW mz_internal.mz_mysql_source_tables AS
SELECT
    NULL::text AS id,
    NULL::text AS schema_name,
    NULL::text AS table_name
WHERE false;
