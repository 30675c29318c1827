"""What it takes to read an environment of many objects from a Spark application that knows only where it is, and to register it.

    python bench/spark                       # 1,000 objects
    python bench/spark --objects 200 --rounds 10 --only a --json found.json

bench/README.md says what each case is. Wall time, one after another: keep the machine quiet.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import gettempdir
from time import perf_counter

from pyspark.sql import Row, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

import mzsql
from mzsql.compute.engines.spark_session import local_session
from mzsql.spark import register
from mzsql.spark.registration import ensure_source

_ROOT = Path(__file__).resolve().parents[2]
# The table of a case is that of bench/persist.
sys.path += [str(_ROOT / "bench/persist")]

# Found only once the folder is known.
# isort: off
import command  # noqa: E402
from figures import Case, machine, run_cases, scratch, shown  # noqa: E402
# isort: on

LETTERS = "ab"
#: Tables that are made elsewhere while the environment is registered.
_LATE = 5


class _OneRow(DataSourceReader):
    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:  # noqa: ARG002  Spark's own
        yield (1,)


class _Trivial(DataSource):
    @classmethod
    def name(cls) -> str:
        return "trivial"

    def schema(self) -> str:
        return "n int"

    def reader(self, schema: object) -> _OneRow:  # noqa: ARG002  Spark's own
        return _OneRow()


@dataclass(frozen=True)
class _Setting:
    """What is read, and by which session."""

    spark: SparkSession
    con: mzsql.Connection
    env: str
    rounds: int


def main() -> None:
    parser = command.parser(__doc__, LETTERS)
    parser.add_argument("--objects", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=20, help="warm reads")
    given = parser.parse_args()
    with scratch(Path(gettempdir())) as folder:
        about = machine(folder)
        print("; ".join(f"{name} {shown(value)}" for name, value in about.items()))
        found = {"machine": about, "objects": given.objects, "cases": _run(given, folder / "env")}
    command.keep(found, given)


def _run(given: argparse.Namespace, env: Path) -> object:
    spark = local_session(cores=2)
    ensure_source(spark)
    spark.dataSource.register(_Trivial)
    with mzsql.connect(str(env)) as con:
        for n in range(given.objects):
            con.execute(f"CREATE TABLE t{n} (a bigint, b text)")
        setting = _Setting(spark, con, str(env), given.rounds)
        return run_cases(
            given.only, {"a": lambda: _reads(setting), "b": lambda: _registers(setting)}
        )


def _reads(setting: _Setting) -> Case:
    spark, case = setting.spark, Case("a", "a read of a builtin relation")

    def builtin() -> None:
        frame = spark.read.format("mzsql").option("env", setting.env)
        frame.load("mz_catalog.mz_tables").collect()

    def trivial() -> None:
        spark.read.format("trivial").load().collect()

    _row(case, "first", [_took(builtin)])
    for _ in range(5):
        builtin()
        trivial()
    pairs = [(_took(builtin), _took(trivial)) for _ in range(setting.rounds)]
    _row(case, "warm", [a for a, _ in pairs])
    _row(case, "a data source of one row, warm", [b for _, b in pairs])
    return case


def _registers(setting: _Setting) -> Case:
    spark, case = setting.spark, Case("b", "registration of all relations")
    session = spark.newSession()
    began = perf_counter()
    registered = register(session, setting.env, lead=False)
    took = (perf_counter() - began) * 1000
    count = sum(len(_tables(spark, one.name)) for one in spark.catalog.listDatabases())
    _row(case, f"of {count} relations", [took])
    _row(case, "of one of them", [took / count])
    times = []
    for n in range(_LATE):
        setting.con.execute(f"CREATE TABLE late{n} (a bigint)")
        times.append(_took(lambda n=n: session.sql(f"SELECT * FROM late{n}").schema))
    _row(case, "of one that was just made elsewhere, with a look at it", times)
    registered.close()
    return case


def _tables(spark: SparkSession, schema: str) -> list[Row]:
    return spark.sql(f"SHOW TABLES IN `{schema}`").collect()


def _took(what: Callable[[], object]) -> float:
    """In milliseconds."""
    began = perf_counter()
    what()
    return (perf_counter() - began) * 1000


def _row(case: Case, what: str, times: list[float]) -> None:
    case.row(what=what, ms=median(times), least=min(times), most=max(times))


if __name__ == "__main__":
    main()
