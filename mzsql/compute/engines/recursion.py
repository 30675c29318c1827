"""Runs recursions (WITH MUTUALLY RECURSIVE) in DuckDB, before the statement that reads their results.

Promise: afterwards the contents of each binding are in a temporary table of the connection, at the fixpoint or after
the last round that the limit allows. An interrupt of the statement ends a running recursion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import duckdb
import msgspec

from mzsql.expr.engines import to_sql
from mzsql.expr.functions.table import Engine
from mzsql.render.nodes.recursion import Loop
from mzsql.repr.errors import DataError


class BindingText(msgspec.Struct, frozen=True):
    """A `mzsql.render.nodes.recursion.Binding` in DuckDB's SQL."""

    relation: str
    empty: str
    loops: tuple[LoopText, ...]
    statement: str


class LoopText(msgspec.Struct, frozen=True):
    """A `mzsql.render.nodes.recursion.Loop` in DuckDB's SQL."""

    bindings: tuple[BindingText, ...]
    limit: tuple[int, bool] | None


def texts(loops: Sequence[Loop]) -> tuple[LoopText, ...]:
    """Recursions in DuckDB's SQL."""
    return tuple(
        LoopText(
            tuple(
                BindingText(
                    one.relation,
                    to_sql(one.empty, Engine.DUCKDB),
                    texts(one.loops),
                    to_sql(one.statement, Engine.DUCKDB),
                )
                for one in loop.bindings
            ),
            loop.limit,
        )
        for loop in loops
    )


def tables(loops: Sequence[LoopText]) -> list[str]:
    """Every table that `run` leaves behind."""
    return [
        name
        for loop in loops
        for one in loop.bindings
        for name in (one.relation, *tables(one.loops))
    ]


def run(
    connection: duckdb.DuckDBPyConnection, loops: Sequence[LoopText], check: Callable[[], None]
) -> None:
    """Run recursions, one after another.

    Args:
        connection: has the relations that they read.
        loops: the recursions.
        check: called once a round; raises if the statement should end.

    Raises:
        DataError: a limit was reached that is an error.
    """
    for loop in loops:
        for one in loop.bindings:
            connection.execute(f'CREATE OR REPLACE TEMP TABLE "{one.relation}" AS {one.empty}')
        rounds = 0
        while _round(connection, loop, check):
            rounds += 1
            if loop.limit is not None and rounds >= loop.limit[0]:
                if loop.limit[1]:
                    break
                raise DataError(
                    f"Evaluation error: Recursive query exceeded the recursion limit {loop.limit[0]}. "
                    "(Use RETURN AT RECURSION LIMIT to not error, but return the current state as "
                    "the final result when reaching the limit.)"
                )


def _round(
    connection: duckdb.DuckDBPyConnection, loop: LoopText, check: Callable[[], None]
) -> bool:
    """Compute every binding once, each over the newest contents of the others; return whether one of them changed."""
    check()
    changed = False
    for one in loop.bindings:
        run(connection, one.loops, check)
        new, old = f'"{one.relation}_new"', f'"{one.relation}"'
        connection.execute(f"CREATE OR REPLACE TEMP TABLE {new} AS {one.statement}")
        ((differs,),) = connection.execute(
            f"SELECT EXISTS ((FROM {new} EXCEPT FROM {old}) UNION ALL (FROM {old} EXCEPT FROM {new}))"
        ).fetchall()
        if differs:
            connection.execute(f"CREATE OR REPLACE TEMP TABLE {old} AS FROM {new}")
            changed = True
        connection.execute(f"DROP TABLE {new}")
    return changed
