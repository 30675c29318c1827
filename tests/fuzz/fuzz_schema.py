"""Random tables with random rows: NULLs, duplicates, boundary values, none at all; views over them.

Promise: the same random numbers, the same tables. Values come from small pools, so that joins meet and groups have several rows. Tables
share the column ``k``, an integer, for NATURAL and USING. A column is *tame* or not: what is tame may be calculated with; the others
hold the ends of their types' ranges and are only compared, grouped, ordered and cast.

Intervals stand in no column: Materialize orders them by months first, PostgreSQL by their length. The reals are sums of eighths, which
every driver hands out alike. Documents hold no documents, as their texts differ in blanks.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

COMMON = {
    "boolean": "boolean",
    "smallint": "smallint",
    "integer": "integer",
    "bigint": "bigint",
    "numeric": "numeric(12, 2)",
    "double": "double precision",
    "text": "text",
    "date": "date",
    "timestamp": "timestamp",
}
#: Types that stand in one column of five.
RARE = {
    "real": "real",
    "time": "time",
    "timestamptz": "timestamptz",
    "uuid": "uuid",
    "bytea": "bytea",
    "jsonb": "jsonb",
    "integers": "integer[]",
    "texts": "text[]",
    "range": "int4range",
}
SQL_TYPES = COMMON | RARE
KINDS = tuple(SQL_TYPES)
#: Types whose order is no one's but Materialize's.
UNORDERED = frozenset({"jsonb"})
#: Types that `min` and `max` take in PostgreSQL.
EXTREMES = frozenset(KINDS) - {"boolean", "uuid", "bytea", "jsonb", "integers", "texts", "range"}

_INTEGERS = ["0", "1", "2", "3", "-1", "-7", "10", "50"]
TAME = {
    "boolean": ["true", "false"],
    "smallint": _INTEGERS,
    "integer": _INTEGERS,
    "bigint": _INTEGERS,
    "numeric": ["0", "0.50", "1.25", "-1.00", "2.50", "-2.50", "99.99", "3"],
    "double": ["0", "0.5", "1.25", "-2", "100.5", "2"],
    "text": ["", "a", "b", "ab", "A", "abc", "x y", "%", "_", "a%", "10", " ", "日本", "it's", "\\", "NULL", "b "],
    "date": ["2020-02-29", "1999-12-31", "2020-01-01", "2021-03-31", "2024-02-28"],
    "timestamp": ["2020-02-29 12:34:56.789", "1999-12-31 23:59:59.999999", "2020-01-01 00:00:00", "2021-03-31 00:00:00",
                  "1969-12-31 23:59:59"],
    "real": ["0", "0.5", "1.25", "-2", "100.5", "2"],
    "time": ["00:00:00", "12:34:56.789", "23:59:59.999999", "01:02:03"],
    "timestamptz": ["2020-02-29 12:34:56.789+00", "1999-12-31 23:59:59.999999+00", "2020-01-01 00:00:00+00", "2021-03-31 02:00:00+02"],
    "uuid": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
             "7f000000-0000-0000-0000-000000000001", "80000000-0000-0000-0000-000000000001"],
    "bytea": ["", "\\x00", "\\x6162", "\\x61", "\\xff00", "\\x7f"],
    "jsonb": ["{}", "[]", "null", "1", "\"a\"", "true", '{"a": 1}', '{"a": "x", "b": null}', "[1, 2]", '["a", null]', '{"b": true}'],
    "integers": ["{}", "{1}", "{1,2}", "{2,1}", "{NULL}", "{1,NULL}", "{3,10,-7}", "{1,1}"],
    "texts": ["{}", "{a}", "{a,b}", "{NULL,b}", '{"",ab}', '{"x y"}'],
    "range": ["empty", "[1,5)", "[1,1]", "[3,10)", "(,3)", "[2,)", "(,)", "[-7,0)"],
}  # fmt: skip
WILD = {
    "smallint": ["32767", "-32768", "0", "1"],
    "integer": ["2147483647", "-2147483648", "0", "1"],
    "bigint": ["9223372036854775807", "-9223372036854775808", "0", "2147483648"],
    "numeric": ["9999999999.99", "-9999999999.99", "0.01", "-0.01"],
    "double": ["NaN", "Infinity", "-Infinity", "1e300", "-0", "0", "5e-324", "0.1"],
    "date": ["0001-01-01", "9999-12-31", "1582-10-04", "1900-02-28"],
    "timestamp": ["0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "1582-10-15 00:00:00"],
}
#: How far from zero values of a type get.
LIMITS: dict[str, float] = {"smallint": 2**15, "integer": 2**31, "bigint": 2**63, "numeric": 1e10}
#: What tame values of a type are bounded by.
BOUNDS = {kind: {"boolean": 1.0, "text": 10.0, "double": 101.0, "real": 101.0}.get(kind, 100.0) for kind in KINDS}  # fmt: skip


def random_kind(rng: random.Random, *, ordered: bool = True, rare: bool = True) -> str:
    """A type, a common one rather."""
    kind = rng.choice(tuple(RARE if rare and rng.random() < 0.2 else COMMON))
    return random_kind(rng) if ordered and kind in UNORDERED else kind


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    kind: str
    tame: bool
    nullable: bool
    limit: float | None = None

    @property
    def bound(self) -> float:
        """What its values are bounded by."""
        if self.limit is not None:
            return self.limit
        return BOUNDS[self.kind] if self.tame else LIMITS.get(self.kind, math.inf)


@dataclass(frozen=True)
class Table:
    """A table, its rows written as SQL; or a view, with its query."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...] = field(default=())
    query: str = ""

    def statements(self) -> list[str]:
        """What makes it and fills it."""
        if self.query:
            names = ", ".join(column.name for column in self.columns)
            return [f"CREATE VIEW {self.name} ({names}) AS {self.query}"]
        columns = ", ".join(
            f"{c.name} {SQL_TYPES[c.kind]}{'' if c.nullable else ' NOT NULL'}" for c in self.columns
        )
        made = [f"CREATE TABLE {self.name} ({columns})"]
        if self.rows:
            made.append(f"INSERT INTO {self.name} VALUES {', '.join(map(row_text, self.rows))}")
        return made

    def spelled_out(self) -> str:
        """The same as a CTE of constants; a row of no values gives the columns their types."""
        names = ", ".join(column.name for column in self.columns)
        nothing = ", ".join(f"NULL::{SQL_TYPES[c.kind]}" for c in self.columns)
        typed = ", ".join(f"{c.name}::{SQL_TYPES[c.kind]} AS {c.name}" for c in self.columns)
        body = ", ".join([f"(0, {nothing})", *(f"(1, {', '.join(row)})" for row in self.rows)])
        return (
            f"{self.name} ({names}) AS (SELECT {typed} FROM (VALUES {body}) "
            f"AS v (is_there, {names}) WHERE is_there = 1)"
        )


def row_text(row: tuple[str, ...]) -> str:
    """A row as INSERT writes it."""
    return f"({', '.join(row)})"


def literal(value: str, kind: str) -> str:
    """A value as a constant of exactly its type."""
    quoted = "'" + value.replace("'", "''") + "'"
    if kind == "boolean":
        return value
    if kind == "text":
        return quoted
    if kind in ("date", "timestamp", "time", "timestamptz"):
        return f"{kind.upper()} {quoted}"
    if kind == "integer" and value[0] != "-":
        return value
    if kind == "numeric" and "." in value:
        return f"({value})"
    return f"({quoted}::{cast_name(kind)})"


def cast_name(kind: str) -> str:
    """What a cast to a type says."""
    return "numeric" if kind == "numeric" else SQL_TYPES[kind]


def random_row(rng: random.Random, table: Table) -> tuple[str, ...]:
    """A row for a table."""
    return tuple(_value(rng, column) for column in table.columns)


def _value(rng: random.Random, column: Column) -> str:
    if column.nullable and rng.random() < 0.2:
        return "NULL"
    pool = TAME[column.kind] if column.tame else WILD[column.kind]
    return literal(rng.choice(pool), column.kind)


def random_table(rng: random.Random, name: str, *, rare: bool = True) -> Table:
    """A table of two to six columns and up to ten rows, some of them twice."""
    columns = [Column("k", "integer", True, rng.random() < 0.7)]
    for number in range(rng.randint(1, 5)):
        kind = random_kind(rng, ordered=rng.random() < 0.7, rare=rare)
        tame = kind not in WILD or rng.random() < 0.75
        columns.append(Column(f"c{number}", kind, tame, rng.random() < 0.75))
    table = Table(name, tuple(columns))
    rows: list[tuple[str, ...]] = []
    for _ in range(rng.choice([0, 1, 3, 5, 7, 10])):
        again = rows and rng.random() < 0.2
        rows.append(rng.choice(rows) if again else random_row(rng, table))
    return Table(name, table.columns, tuple(rows))


def random_tables(rng: random.Random, count: int = 3, *, rare: bool = True) -> list[Table]:
    """Tables t0, t1, …"""
    return [random_table(rng, f"t{number}", rare=rare) for number in range(count)]
