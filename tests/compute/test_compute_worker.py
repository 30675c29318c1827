"""The worker of a key is the same in Spark and DuckDB."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from sqlglot import expressions as exp

from mzsql.compute.engines.driver import Driver
from mzsql.compute.engines.relations import arrow_frame
from mzsql.compute.engines.spark_session import step_session
from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine, Sql
from mzsql.render.worker import worker_of
from mzsql.repr import types as t

pytestmark = pytest.mark.spark

VALUES = {
    t.BOOLEAN: [True, False],
    t.SMALLINT: [-(2**15), 0, 5],
    t.INTEGER: [*range(-20, 20)],
    t.BIGINT: [-(2**63), 2**63 - 1, 0],
    t.OID: [0, 2**32 - 1],
    t.UINT8: [Decimal(0), Decimal(2**64 - 1)],
    t.NUMERIC: [Decimal("0"), Decimal("-0.000000000000000001"), Decimal("12345678901234567890.5")],
    t.SqlType("numeric", scale=0): [Decimal(10**37), Decimal(-7)],
    t.TEXT: ["", "a", "ä\n", "=", "-/"],
    t.BYTEA: [b"", b"\x00\xff"],
    t.DATE: [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(9999, 12, 31)],
    t.TIMESTAMP: [dt.datetime(1, 1, 1), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)],
    t.TIMESTAMPTZ: [dt.datetime(1600, 2, 3, tzinfo=dt.UTC), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)],
    t.DOUBLE: [1.5, float("nan"), float("-inf")],
    t.INTERVAL: [{"months": -1, "days": 2, "micros": 3}],
}


#: Numbers of workers, some of which divide 16: DuckDB needs less of the hash for those.
WORKERS = (97, 2, 3, 4, 16, 24, 32)


@pytest.mark.parametrize("typ", VALUES, ids=str)
def test_engines_agree(spark, typ):
    values = [*VALUES[typ], None]
    table = pa.table(
        {
            "n": pa.array(range(len(values)), pa.int64()),
            "c0": pa.array(values, t.arrow_type(typ)),
            "c1": pa.array(range(len(values)), pa.int32()),
        }
    )
    keys = [
        Sql(exp.column("c0", quoted=True), typ),
        Sql(exp.column("c1", quoted=True), t.INTEGER),
    ]
    found = {}
    session = step_session(spark)
    arrow_frame(session, table).createOrReplaceTempView("keys")
    for engine in Engine:
        numbers = [
            exp.alias_(worker_of(keys, workers, engine), f"w{workers}", quoted=True)
            for workers in WORKERS
        ]
        select = exp.select(exp.column("n", quoted=True), *numbers).from_("keys")
        spelled = to_sql(select, engine)
        on_spark = engine is Engine.SPARK
        result = (
            session.sql(spelled).toArrow() if on_spark else Driver().query(select, {"keys": table})
        )
        found[engine] = {row["n"]: row for row in result.to_pylist()}
    assert found[Engine.SPARK] == found[Engine.DUCKDB]
    for workers in WORKERS:
        of_keys = [row[f"w{workers}"] for row in found[Engine.DUCKDB].values()]
        assert all(0 <= worker < workers for worker in of_keys)
        if len(values) > 30:
            assert len(set(of_keys)) > min(40, workers) // 2 - 1


def test_one_worker_needs_no_hash():
    assert to_sql(worker_of([], 5, Engine.DUCKDB), Engine.DUCKDB) == "CAST(0 AS INT)"
