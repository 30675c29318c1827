"""TPC-H's 22 queries at scale factor 1, asked once in an environment that has no view: DuckDB's answers over the same files.

What is read is past what a query may hold in memory: DuckDB answers most of them over the stored files, and, with `step_engine` at
`spark`, Spark does, without a dataflow ever having been made.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pytest
from tpch_answers import check, loaded
from tpch_scripts import NAMES, TABLES, query_of

import mzsql
from mzsql.cli.demo import generate
from mzsql.compute import Peeks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "scale",
    [pytest.param(0.05, marks=pytest.mark.long), pytest.param(1.0, marks=pytest.mark.soak)],
)
def test_large_queries_without_a_view(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, scale: float
) -> None:
    files, on_spark = tmp_path / "files", []
    generate(files, scale)
    duck = duckdb.connect()
    for table in TABLES:
        duck.execute(f"CREATE VIEW {table} AS FROM read_parquet('{files / table}.parquet')")
    rows = Peeks.rows

    def counted(own: Peeks, *args: Any, **options: Any) -> Any:
        on_spark.append(name)
        return rows(own, *args, **options)

    monkeypatch.setattr(Peeks, "rows", counted)
    with mzsql.connect(tmp_path / "env", spark=spark) as con:
        loaded(con, files)
        theirs = {name: duck.execute(query_of(name)).fetchall() for name in NAMES}
        for engine in ("auto", "spark"):
            con.execute(f"ALTER SYSTEM SET step_engine = '{engine}'")
            for name in NAMES:
                mine = [tuple(row) for row in con.execute(query_of(name)).fetchall()]
                check(name, mine, theirs[name])
            assert (len(on_spark) >= 15) == (engine == "spark")
        assert not con.coordinator.env.catalog.state.maintained
