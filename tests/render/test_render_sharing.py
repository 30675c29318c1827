"""Nested functions that write their arguments several times: the SQL grows with the depth, not with a power of it."""

from __future__ import annotations

import pytest

from mzsql.expr.engines import duckdb_connection, to_sql
from mzsql.expr.functions.table import Engine
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import Call, Column, Literal, Scalar
from mzsql.render.nodes import rows, sharing
from mzsql.repr.types import INTEGER, ColumnType, SqlType

_CENTS = SqlType("numeric", scale=2)
_COLUMNS = [ColumnType(_CENTS), ColumnType(INTEGER)]
_ONE = Literal("3.00", _CENTS)


def _nested(depth: int) -> Scalar:
    """Roundings to a place that a column says, each of a quotient that may fail, one in another."""
    expr: Scalar = Column(0)
    for _ in range(depth):
        quotient = Call("div_numeric", (expr, _ONE), _CENTS)
        expr = Call("round_numeric_to", (quotient, Column(1)), _CENTS)
    return expr


def _written(depth: int, engine: Engine) -> str:
    mfp = MapFilterProject(2, (_nested(depth),), (), (2,))
    select, _ = rows.mapped(mfp, _COLUMNS, "t", engine, carry=())
    return to_sql(select, engine)


@pytest.mark.parametrize("engine", list(Engine))
def test_the_text_grows_with_the_depth(engine: Engine) -> None:
    few, many = len(_written(2, engine)), len(_written(6, engine))
    assert many < 4 * few
    assert many < 100_000


def test_a_failure_deep_inside_is_told_and_other_rows_have_their_values() -> None:
    con = duckdb_connection()
    con.execute("CREATE TABLE t (c0 DECIMAL(38, 2), c1 INTEGER)")
    con.execute("INSERT INTO t VALUES (27, 1), (NULL, 1), (27, NULL), (1, 1)")
    found = con.execute(_written(3, Engine.DUCKDB)).fetchall()
    assert sorted((None if v is None else float(v) for v, *_ in found), key=str) == [
        0.0,
        1.0,
        None,
        None,
    ]
    mfp = MapFilterProject(2, (_failing(3),), (), (2,))
    select, errors = rows.mapped(mfp, _COLUMNS, "t", Engine.DUCKDB, carry=())
    assert errors
    found = con.execute(to_sql(select, Engine.DUCKDB)).fetchall()
    assert [message for _, message in found if message is not None] == ["division by zero"]


def _failing(depth: int) -> Scalar:
    """One that divides by what is 1 - c0."""
    expr = _nested(depth)
    zero = Call("sub_numeric", (Literal("1.00", _CENTS), Column(0)), _CENTS)
    return Call("add_numeric", (expr, Call("div_numeric", (_ONE, zero), _CENTS)), _CENTS)


def test_what_is_small_stays_in_one_place() -> None:
    quotient = Call("div_numeric", (Column(0), _ONE), _CENTS)
    assert sharing.parts([Call("neg_numeric", (quotient,), _CENTS)], _COLUMNS) == []
