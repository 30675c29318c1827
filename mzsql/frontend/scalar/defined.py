"""Functions defined by an SQL expression with ``$1``, ``$2``, … for the arguments.

Promise: no part of a definition has a place in the text of the statement that calls the function. What is kept or said of that text (the
objects in it, its normalized form, positions of errors) is about what was written there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from sqlglot import expressions as exp

from mzsql.frontend.parse import statements as st
from mzsql.frontend.parse.parse import parse_statements
from mzsql.frontend.parse.pieces import without_places
from mzsql.repr import types as t
from mzsql.repr.types import SqlType


@dataclass(frozen=True)
class Defined:
    """One overload: argument types, the expression's text, and the type of its value."""

    args: tuple[SqlType, ...]
    sql: str
    result: SqlType = t.TEXT


def overloads(
    sql: str, *several: Sequence[SqlType], result: SqlType = t.TEXT
) -> tuple[Defined, ...]:
    """The same definition for several lists of argument types."""
    return tuple(Defined(tuple(args), sql, result) for args in several)


def asking(sql: str, *several: Sequence[SqlType]) -> tuple[Defined, ...]:
    """As `overloads`, for a boolean result."""
    return overloads(sql, *several, result=t.BOOLEAN)


@lru_cache(256)
def _parsed(sql: str) -> exp.Expr:
    (statement,) = parse_statements(f"SELECT {sql}")
    assert isinstance(statement, st.Select)
    body: exp.Expr = statement.query.expressions[0]
    return without_places(body)


def filled(sql: str, arguments: Sequence[exp.Expr]) -> exp.Expr:
    """The definition with its parameters replaced by arguments."""

    def one(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Parameter | exp.Placeholder):
            return arguments[int(str(node.name)) - 1].copy()
        return node

    return exp.Paren(this=_parsed(sql).copy().transform(one))


def written_type(typ: SqlType) -> exp.DataType:
    """The type of a parameter as a cast writes it."""
    if typ.kind == "array" and typ.element is not None:
        return exp.DataType(
            this=exp.DType.ARRAY, expressions=[written_type(typ.element)], nested=True
        )
    return exp.DataType(this=exp.DType.USERDEFINED, kind=typ.kind)
