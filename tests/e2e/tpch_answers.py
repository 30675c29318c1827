"""TPC-H loaded into an environment, and its answers compared with another engine's."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

from tpch_scripts import TABLES, script

import mzsql


def loaded(con: mzsql.Connection, files: Path) -> mzsql.Connection:
    """The connection, its environment filled from Parquet files."""
    con.execute("SET statement_timeout = '10 min'")
    con.execute(script("schema"))
    for table in TABLES:
        con.execute(f"COPY {table} FROM '{files / table}.parquet' (FORMAT PARQUET)")
    return con


def _near(a: Any, b: Any) -> bool:
    """Equal, but for the last digits of averages, which DuckDB computes in binary."""
    if isinstance(a, int | float | Decimal) and isinstance(b, int | float | Decimal):
        return math.isclose(float(a), float(b), rel_tol=1e-9)
    return str(a) == str(b)


def _exact(row: tuple[Any, ...]) -> list[str]:
    """What of a row is the same to the last digit in both: a year is an integer here and a numeric there."""
    return [
        str(int(value)) if isinstance(value, int | float | Decimal) else str(value)
        for value in row
        if not isinstance(value, float | Decimal) or float(value).is_integer()
    ]


def check(name: str, mine: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> None:
    """Raise AssertionError where the answers of a query differ."""
    assert len(mine) == len(theirs), name
    # Texts, dates and whole numbers tell the rows of every answer apart.
    mine, theirs = (sorted(rows, key=_exact) for rows in (mine, theirs))
    for left, right in zip(mine, theirs, strict=True):
        assert all(map(_near, left, right)), (name, left, right)
