"""Rows of either engine, as they are compared."""

from __future__ import annotations

from decimal import Decimal
from typing import Any


def rounded_rows(con: Any, sql: str) -> list[tuple[Any, ...]]:
    """A query's rows; numbers with a fraction to nine digits, in which engines may differ."""
    return [
        tuple(round(float(v), 9) if isinstance(v, Decimal | float) else v for v in row)
        for row in con.execute(sql).fetchall()
    ]
