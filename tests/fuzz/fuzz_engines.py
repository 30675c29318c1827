"""The engines that are asked the same: mzsql in a directory and without Spark, PostgreSQL, and DuckDB.

Promise: an answer is rows that compare across drivers (a number as a decimal, a float to nine digits), or the error's SQLSTATE and text.
Tables live in a schema of their own for each `load`, so that one server and one environment serve any number of them.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg
from postgres_server import PostgresServer
from psycopg.types.json import set_json_loads
from psycopg.types.range import Range

import mzsql

if TYPE_CHECKING:
    from fuzz_schema import Table
    from pyspark.sql import SparkSession

#: Long enough for a machine that others use too.
_SECONDS = 60
_MINE = re.compile(r"/\*mine\*/.*?/\*theirs\*/")


@dataclass(frozen=True)
class Failure:
    """An error instead of an answer."""

    sqlstate: str
    message: str


Rows = list[tuple[Any, ...]]
Answer = Rows | Failure


@dataclass(frozen=True)
class _Document:
    """PostgreSQL's jsonb, as its text."""

    text: str


def plain(value: object) -> object:
    """A value that compares across drivers, with the kind of its type."""
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else f"{value + 0.0:.9g}")
    if isinstance(value, Decimal):
        return ("numeric", value if value.is_finite() else str(value))
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    if isinstance(value, Range | mzsql.Range):
        bounds = value.bounds or ""
        ends = (value.lower, value.upper, bounds)
        return ("range", "empty" if value.isempty else ends)
    if isinstance(value, mzsql.Jsonb | _Document):
        return ("jsonb", json.dumps(json.loads(value.text), sort_keys=True))
    if isinstance(value, dt.timedelta | mzsql.Interval):
        return ("interval", _microseconds(value))
    return (type(value).__name__, value)


def _microseconds(value: dt.timedelta | mzsql.Interval) -> int:
    if isinstance(value, mzsql.Interval):
        # psycopg makes a month 30 days.
        days = value.months // 12 * 365 + value.months % 12 * 30 + value.days
        return days * 86_400_000_000 + value.microseconds
    return value // dt.timedelta(microseconds=1)


def bag(rows: Iterable[tuple[Any, ...]]) -> Counter[tuple[object, ...]]:
    """Rows without their order."""
    return Counter(tuple(map(plain, row)) for row in rows)


def in_order(rows: Iterable[tuple[Any, ...]]) -> list[tuple[object, ...]]:
    """Rows in their order."""
    return [tuple(map(plain, row)) for row in rows]


class Worlds:
    """mzsql and PostgreSQL side by side; the same statements go to both."""

    def __init__(self, env: Path, spark: SparkSession | None = None) -> None:
        self._server = PostgresServer()
        self._server.start()
        self.postgres = self._server.connect()
        self.postgres.execute(f"SET statement_timeout = '{_SECONDS}s'")
        self.postgres.execute("SET timezone = 'UTC'")
        # A plan of its own for each query is what takes PostgreSQL long, not the few rows.
        self.postgres.execute("SET jit = off")
        set_json_loads(lambda data: _Document(bytes(data).decode()), self.postgres)
        if spark is None:
            # What is asked is what queries answer, not where tables lie.
            self.ours = mzsql.connect(blob="mem:", consensus="mem:")
        else:
            self.ours = mzsql.connect(env, spark=spark)
        self.ours.execute(f"SET statement_timeout = '{_SECONDS * (10 if spark else 1)} s'")
        self._schemas = 0

    def load(self, tables: Iterable[Table]) -> None:
        """Make and fill tables, in a schema of their own which is where names are looked for."""
        if self._schemas:
            self.both(f"DROP SCHEMA f{self._schemas} CASCADE")
        self._schemas += 1
        schema = f"f{self._schemas}"
        self.both(f"CREATE SCHEMA {schema}")
        self.both(f"SET search_path = {schema}")
        for table in tables:
            for statement in table.statements():
                self.both(statement)

    def both(self, statement: str) -> None:
        """A statement that has to succeed in both."""
        self.ours.execute(statement)
        self.postgres.execute(statement.encode())

    def mine(self, sql: str) -> Answer:
        """mzsql's answer. A bug of its own is no answer: it passes through as what it is."""
        try:
            return [tuple(row) for row in self.ours.execute(sql).fetchall()]
        except mzsql.Error as error:
            return Failure(getattr(error, "sqlstate", None) or "", str(error).split("\n")[0])

    def theirs(self, sql: str) -> Answer:
        """PostgreSQL's answer."""
        try:
            return self.postgres.execute(_MINE.sub("", sql).encode()).fetchall()
        except psycopg.Error as error:
            return Failure(error.sqlstate or "", str(error).split("\n")[0])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.ours.close()
        self.postgres.close()
        self._server.__exit__()
