"""Who recomputes what views hold, over Parquet files of the same rows: DuckDB in this process, and Spark beside the views' own.

Promise: both read files of the types that TPC-H declares, with the defaults of their makers but for one: Spark shuffles into as many
partitions as there are cores, which at these scales is the fastest that it gets. What is timed is the query alone until all its rows
are here. Neither keeps rows in between; who is to be warm is run once before.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import duckdb
from figures import median, rounds, timed
from pyspark.sql import SparkSession
from tpch import query

from mzsql.cli.demo import TABLES


class Recomputing(Protocol):
    """An engine over files."""

    def seconds(self, view: str) -> float:
        """What the view's query takes until its rows are there."""


class DuckDb:
    """DuckDB in this process."""

    def __init__(self, files: Path) -> None:
        self._duck = duckdb.connect()
        for table in TABLES:
            self._duck.execute(
                f"CREATE VIEW {table} AS FROM read_parquet('{files}/{table}.parquet')"
            )

    def seconds(self, view: str) -> float:
        text = query(view, "duckdb")
        return timed(lambda: self._duck.execute(text).fetchall())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._duck.close()


class Spark:
    """A session of its own beside one that runs."""

    def __init__(self, session: SparkSession, files: Path) -> None:
        self._session = session.newSession()
        self._session.conf.set("spark.sql.shuffle.partitions", str(os.cpu_count()))
        for table in TABLES:
            frame = self._session.read.parquet(f"{files}/{table}.parquet")
            frame.createOrReplaceTempView(table)

    def seconds(self, view: str) -> float:
        text = query(view, "spark")
        return timed(lambda: self._session.sql(text).toArrow())


@dataclass(frozen=True)
class Recomputed:
    """The median seconds that each view's query takes each engine."""

    duckdb: Mapping[str, float]
    spark: Mapping[str, float] | None

    def all_of_them(self) -> dict[str, Mapping[str, float]]:
        """By the engine's name, those that were measured."""
        return {"DuckDB": self.duckdb} | ({} if self.spark is None else {"Spark": self.spark})


def recompute(
    files: Path, views: Sequence[str], session: SparkSession | None, *, repeats: int = 5
) -> Recomputed:
    """Each view's query on each engine, in turns, after a turn that does not count."""
    with ExitStack() as stack:
        engines: dict[str, Recomputing] = {"duckdb": stack.enter_context(DuckDb(files))}
        if session is not None:
            engines["spark"] = Spark(session, files)
        found: dict[str, dict[str, float]] = {name: {} for name in engines}
        for view in views:
            turns = {
                name: lambda engine=engine, view=view: engine.seconds(view)
                for name, engine in engines.items()
            }
            for name, seconds in rounds(repeats, turns, warm=1).items():
                found[name][view] = median(seconds)
    return Recomputed(found["duckdb"], found.get("spark"))
