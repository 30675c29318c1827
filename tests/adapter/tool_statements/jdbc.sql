-- DBeaver, pgJDBC, Npgsql and others, a statement a line
SELECT nspname AS TABLE_SCHEM, NULL AS TABLE_CATALOG FROM pg_catalog.pg_namespace WHERE nspname <> 'pg_toast' AND (nspname !~ '^pg_temp_' OR nspname = (pg_catalog.current_schemas(true))[1]) ORDER BY TABLE_SCHEM;
SELECT db.oid,db.* FROM pg_catalog.pg_database db WHERE datallowconn AND NOT datistemplate OR db.datname = 'materialize' ORDER BY db.datname;
SELECT t.oid,t.*,c.relkind,format_type(nullif(t.typbasetype, 0), t.typtypmod) as base_type_name, d.description FROM pg_catalog.pg_type t LEFT OUTER JOIN pg_catalog.pg_type et ON et.oid=t.typelem LEFT OUTER JOIN pg_catalog.pg_class c ON c.oid=t.typrelid LEFT OUTER JOIN pg_catalog.pg_description d ON t.oid=d.objoid WHERE t.typname IS NOT NULL AND (c.relkind IS NULL OR c.relkind = 'c') AND (et.typcategory IS NULL OR et.typcategory <> 'C');
SELECT pg_is_other_temp_schema(0);
SELECT to_regtype('integer');
SELECT * FROM information_schema.constraint_column_usage;
SELECT a.oid, a.opcname FROM pg_catalog.pg_opclass a;
SELECT DISTINCT dep.deptype, dep.classid, dep.objid, cl.relkind, ad.attname FROM pg_depend dep LEFT JOIN pg_class cl ON dep.objid=cl.oid LEFT JOIN pg_attribute ad ON ad.attrelid = dep.objid AND ad.attnum = dep.objsubid WHERE dep.refobjid=1;
SELECT n.nspname, c.relname, a.attname, a.atttypid, t.typinput FROM pg_catalog.pg_namespace n JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid JOIN pg_catalog.pg_type t ON a.atttypid = t.oid WHERE c.relname LIKE 't' ESCAPE '\';
SELECT i.indnkeyatts FROM pg_catalog.pg_index i;
SELECT quote_ident(table_name) AS "table" FROM information_schema.tables WHERE quote_ident(table_schema) NOT IN ('information_schema','pg_catalog') ORDER BY table_name;
select string_agg(word, ',') from pg_catalog.pg_get_keywords() where word <> ALL ('{a,abs,absolute,action,ada,add,admin,after,all}'::text[])
