"""The 22 queries of TPC-H, as they are shipped: planned, decorrelated, and answered as DuckDB answers them.

Decorrelated plans multiply whole tables before they filter, so they are optimized before they are evaluated.
"""

from __future__ import annotations

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from memory_catalog import MemoryCatalog
from mir_model import Model

from mzsql.expr import spell
from mzsql.expr.engines import duckdb_connection, to_sql
from mzsql.expr.functions.table import Engine
from mzsql.frontend import lower_query
from mzsql.frontend.plan import ddl_plans
from mzsql.transform import OptimizerContext, optimize_local

SCRIPTS = Path(__file__).parents[2] / "sql" / "tpch"
QUERIES = sorted(SCRIPTS.glob("q*.sql"))


class Tpch:
    """The eight tables, in a catalog and in DuckDB: as `<table>` for its own SQL, as `base_<table>` for ours."""

    def __init__(self, data: Path) -> None:
        self.catalog = MemoryCatalog()
        self.catalog.run((SCRIPTS / "schema.sql").read_text())
        self.duck: duckdb.DuckDBPyConnection = duckdb_connection()
        self.tables: dict[str, str] = {}
        for item in self.catalog.items.values():
            name = item.name.item
            self.duck.execute(f"CREATE TABLE {name} AS FROM '{data / name}.parquet'")
            columns = ", ".join(
                f'CAST("{n}" AS {to_sql(spell.sql_type(c.type, Engine.DUCKDB), Engine.DUCKDB)}) AS c{i}'
                for i, (n, c) in enumerate(zip(item.desc.names, item.desc.typ.columns, strict=True))
            )
            self.duck.execute(f"CREATE TABLE base_{name} AS SELECT {columns} FROM {name}")
            self.tables[item.id] = f"base_{name}"


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tpch]:
    data = tmp_path_factory.mktemp("tpch")
    tool = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or "tpchgen-cli"
    subprocess.run(
        [tool, "parquet", "-s", "0.01", f"--output-dir={data}"],
        check=True,
        capture_output=True,
    )
    made = Tpch(data)
    yield made
    made.duck.close()


def close(a: object, b: object) -> bool:
    if isinstance(a, float | Decimal | int) and isinstance(b, float | Decimal | int):
        return math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-6)
    return a == b


@pytest.mark.parametrize("path", QUERIES, ids=[p.stem for p in QUERIES])
def test_tpch_query(tpch: Tpch, path: Path) -> None:
    text = path.read_text()
    plan = tpch.catalog.plan(text)
    assert isinstance(plan, ddl_plans.CreateMaterializedViewPlan)
    lowered = lower_query(plan.query)
    relation = optimize_local(lowered.relation, OptimizerContext())
    ours = Model(tpch.tables, errors=False).answer(tpch.duck, relation, lowered.finishing)
    query = re.split(r"CREATE MATERIALIZED VIEW \w+ AS", text)[1].strip().rstrip(";")
    theirs = tpch.duck.execute(query).fetchall()
    assert lowered.desc.arity == len(tpch.duck.description)
    assert len(ours) == len(theirs)
    for a, b in zip(
        sorted(ours, key=lambda r: [str(v) for v in map(rounded, r)]),
        sorted(theirs, key=lambda r: [str(v) for v in map(rounded, r)]),
        strict=True,
    ):
        assert all(map(close, a, b)), (a, b)


def rounded(value: object) -> object:
    return round(float(value), 3) if isinstance(value, float | Decimal | int) else value
