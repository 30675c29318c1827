"""An application that has Spark by Spark Connect alone; run by `test_spark_connect.py`, as one process has one kind of session.

It prints what it found as one JSON object on its last line.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import mzsql
import mzsql.spark


def rows(frame: Any) -> list[list[str]]:
    return sorted([str(value) for value in row] for row in frame.collect())


def registered(spark: Any, env: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with mzsql.spark.register(spark, env):
        found["tables"] = sorted(t.name for t in spark.catalog.listTables("public"))
        found["by the catalog"] = rows(spark.table("public.products"))
        found["select"] = rows(spark.sql("SELECT name, price FROM public.products"))
        braces = "SELECT '{x}' || p.name FROM products AS p JOIN public.products USING (name)"
        found["braces"] = rows(spark.sql(braces))
        found["arguments"] = rows(
            spark.sql("SELECT name FROM products WHERE u = :u AND name <> {n}", {"u": 1}, n="rope")
        )
        late = spark.sql("SELECT count(*) FROM products")
        spark.sql("INSERT INTO products VALUES ('saw', 7, 18446744073709551615)")
        found["at its time"] = [rows(late), rows(late)]
        spark.sql("CREATE MATERIALIZED VIEW dear AS SELECT name, u FROM products WHERE price > 5")
        found["view"] = rows(spark.sql("SELECT * FROM dear"))
        found["view by the catalog"] = rows(spark.table("public.dear"))
        [[plan]] = rows(
            spark.sql("EXPLAIN PHYSICAL PLAN WITH (node_ids) FOR MATERIALIZED VIEW dear")
        )
        found["plan"] = plan
        objects = "SELECT count(*) FROM mz_catalog.mz_tables WHERE name = 'products'"
        found["builtin"] = rows(spark.sql(objects))
        try:
            spark.sql("CREATE MATERIALIZED VIEW x AS SELECT nope FROM products")
        except Exception as error:
            found["error"] = f"{type(error).__name__}: {error}"
        saw = spark.sql("SELECT 'file' AS name, 1.5 AS price, 4 AS u")
        saw.write.format("mzsql").option("env", env).mode("append").save("public.products")
        found["appended"] = rows(spark.sql("SELECT name, price, u FROM products"))
    found["left"] = sorted(t.name for t in spark.catalog.listTables("public"))
    return found


def connected(spark: Any, env: str) -> dict[str, Any]:
    """A connection of mzsql's that is given the session, and maintains views on it."""
    found: dict[str, Any] = {}
    with mzsql.connect(env, spark=spark) as con:
        found["con.spark"] = rows(con.spark.sql("SELECT name FROM products WHERE u = 1"))
        con.execute("ALTER SYSTEM SET step_engine = 'spark'")
        con.execute(
            "CREATE MATERIALIZED VIEW counts AS SELECT u, count(*) AS n FROM products GROUP BY u"
        )
        found["hydrated"] = sorted(
            map(list, con.execute("SELECT u::text, n FROM counts").fetchall())
        )
        con.execute("INSERT INTO products VALUES ('bolt', 1, 1)")
        found["stepped"] = con.execute("SELECT n FROM counts WHERE u = 1").fetchall()
        engines = "SELECT DISTINCT engine FROM mz_internal.mz_refreshes ORDER BY 1"
        found["engines"] = con.execute(engines).fetchall()
        found["large"] = con.execute("SELECT count(*) FROM products").fetchall()
    return found


def main(env: str) -> None:
    with mzsql.connect(env) as con:
        # Whoever opens it: what waits for Spark may take minutes where the machine is slow.
        con.execute("ALTER SYSTEM SET statement_timeout = '20 min'")
        con.execute("CREATE TABLE products (name text NOT NULL, price numeric(10, 2), u uint8)")
        con.execute("INSERT INTO products VALUES ('anvil', 99.50, 1), ('rope', 3.20, 2)")
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    try:
        found = {**registered(spark, env), **connected(spark, env)}
    except PySparkException as error:
        raise SystemExit(str(error)[:2000]) from None
    finally:
        spark.stop()
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
