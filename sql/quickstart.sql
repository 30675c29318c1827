-- The main job of mzsql from end to end: tables, three materialized views, their plans, changes, and the system's own relations.
-- `mzsql demo` runs this file and tells what it sees. By hand, in a directory that has the tables of TPC-H in tpch/
-- (`tpchgen-cli parquet -s 0.01 -o tpch`):
--
--     mzsql sql --env env --file quickstart.sql

-- step: tables
\ir tpch/schema.sql

-- step: load
COPY region FROM 'tpch/region.parquet' (FORMAT PARQUET);
COPY nation FROM 'tpch/nation.parquet' (FORMAT PARQUET);
COPY supplier FROM 'tpch/supplier.parquet' (FORMAT PARQUET);
COPY customer FROM 'tpch/customer.parquet' (FORMAT PARQUET);
COPY part FROM 'tpch/part.parquet' (FORMAT PARQUET);
COPY partsupp FROM 'tpch/partsupp.parquet' (FORMAT PARQUET);
COPY orders FROM 'tpch/orders.parquet' (FORMAT PARQUET);
COPY lineitem FROM 'tpch/lineitem.parquet' (FORMAT PARQUET);

-- step: views
\ir tpch/q03.sql
\ir tpch/q01.sql
\ir tpch/q18.sql

-- step: explain
EXPLAIN PHYSICAL PLAN WITH (node_ids) FOR MATERIALIZED VIEW q3;

-- step: change: a new order of seven lines, in one transaction
BEGIN;
INSERT INTO orders VALUES
    (100001, 8, 'O', 443000.00, DATE '1995-03-10', '1-URGENT', 'Clerk#000000001', 0, 'seven times fifty');
INSERT INTO lineitem VALUES
    (100001, 1, 2, 1, 50, 63000.00, 0.00, 0.05, 'N', 'O', DATE '1995-03-20', DATE '1995-04-01', DATE '1995-03-25', 'NONE', 'AIR', 'one'),
    (100001, 2, 3, 2, 50, 63100.00, 0.01, 0.05, 'N', 'O', DATE '1995-03-21', DATE '1995-04-01', DATE '1995-03-26', 'NONE', 'AIR', 'two'),
    (100001, 3, 4, 3, 50, 63200.00, 0.02, 0.05, 'N', 'O', DATE '1995-03-22', DATE '1995-04-01', DATE '1995-03-27', 'NONE', 'SHIP', 'three'),
    (100001, 4, 5, 4, 50, 63300.00, 0.03, 0.05, 'N', 'O', DATE '1995-03-23', DATE '1995-04-01', DATE '1995-03-28', 'NONE', 'SHIP', 'four'),
    (100001, 5, 6, 5, 50, 63400.00, 0.04, 0.05, 'N', 'O', DATE '1995-03-24', DATE '1995-04-01', DATE '1995-03-29', 'NONE', 'RAIL', 'five'),
    (100001, 6, 7, 6, 50, 63500.00, 0.05, 0.05, 'N', 'O', DATE '1995-03-25', DATE '1995-04-01', DATE '1995-03-30', 'NONE', 'RAIL', 'six'),
    (100001, 7, 8, 7, 50, 63600.00, 0.06, 0.05, 'N', 'O', DATE '1995-03-26', DATE '1995-04-01', DATE '1995-03-31', 'NONE', 'MAIL', 'seven');
COMMIT;

-- step: change: one order in a thousand once more, under new keys
INSERT INTO lineitem
SELECT
    l_orderkey + 200000, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax,
    l_returnflag, l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment
FROM lineitem
WHERE l_orderkey % 1000 = 1 AND l_orderkey < 100000;
INSERT INTO orders
SELECT
    o_orderkey + 200000, o_custkey, o_orderstatus, o_totalprice, o_orderdate, o_orderpriority, o_clerk, o_shippriority, o_comment
FROM orders
WHERE o_orderkey % 1000 = 1 AND o_orderkey < 100000;

-- step: change: the two orders of the most revenue are cancelled
DELETE FROM lineitem WHERE l_orderkey IN (47714, 22276);
DELETE FROM orders WHERE o_orderkey IN (47714, 22276);

-- step: change: the seven lines grow
UPDATE lineitem SET l_quantity = l_quantity + 1, l_extendedprice = l_extendedprice * 1.02 WHERE l_orderkey = 100001;

-- step: watch
SELECT * FROM mz_internal.mz_hydration_statuses ORDER BY object_id;
SELECT * FROM mz_internal.mz_compute_operator_hydration_statuses ORDER BY object_id, plan_node_id;
SELECT name, definition FROM mz_catalog.mz_materialized_views ORDER BY name;
SELECT * FROM q3;
