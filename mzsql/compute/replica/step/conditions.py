"""Conditions on rows that Arrow evaluates itself: comparisons of columns with each other and with constants.

Promise: `evaluated` says of each row whether a condition, in DuckDB's SQL, is true, as DuckDB does; NULL is not true. It
returns None for what it does not know. Over few rows most of what a statement costs is reading and planning it, which
for a comparison is a hundred times what Arrow takes.

Only types of which both have the same order are compared: integers, dates, decimals of one scale, and texts, by their
bytes. Floats are not, because Arrow's NaN is not equal to itself and DuckDB's is.
"""

from __future__ import annotations

import datetime
import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import expressions as exp
from sqlglot.errors import SqlglotError

#: A longer condition, in characters, is not looked at.
LONGEST = 600

#: A column, one value for all rows, or the truth of a condition.
_Value: TypeAlias = pa.ChunkedArray | pa.Scalar
_Of: TypeAlias = Callable[[pa.Table], _Value]

_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "equal",
    exp.NEQ: "not_equal",
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
}
_CONNECTIVES: dict[type[exp.Expr], str] = {exp.And: "and_kleene", exp.Or: "or_kleene"}


class _Unknown(Exception):
    """Something that is left to DuckDB."""


def is_known(condition: str) -> bool:
    """Whether Arrow evaluates a condition where its columns have suitable types."""
    return _read(condition) is not None


def evaluated(condition: str, table: pa.Table) -> pa.ChunkedArray | None:
    """For each row of a table whether the condition is true; None where DuckDB must tell."""
    known = _read(condition)
    if known is None:
        return None
    try:
        return pc.fill_null(known(table), False)
    except _Unknown:
        return None


@functools.lru_cache(maxsize=4096)
def _read(condition: str) -> _Of | None:
    if len(condition) > LONGEST:
        return None
    try:
        return _truth(sqlglot.parse_one(condition, read="duckdb"))
    except (_Unknown, SqlglotError):
        return None


def _truth(condition: exp.Expr) -> _Of:
    """A condition as a function of a table.

    Raises:
        _Unknown: it has something else in it than is known here.
    """
    node = condition.unnest()
    name = _CONNECTIVES.get(type(node))
    if name is not None:
        return functools.partial(_both, name, _truth(node.this), _truth(node.expression))
    if isinstance(node, exp.Not):
        inner = _truth(node.this)
        return lambda table: pc.invert(inner(table))
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        column = _operand(node.this)
        return lambda table: pc.is_null(column(table))
    name = _COMPARISONS.get(type(node))
    if name is None:
        raise _Unknown
    return _comparison(name, node.this.unnest(), node.expression.unnest())


def _both(name: str, left: _Of, right: _Of, table: pa.Table) -> _Value:
    return pc.call_function(name, [left(table), right(table)])


def _comparison(name: str, left: exp.Expr, right: exp.Expr) -> _Of:
    if not isinstance(left, exp.Column):
        raise _Unknown
    one = _operand(left)
    if isinstance(right, exp.Column):
        return functools.partial(_compared, name, one, _operand(right))
    kind, value = _constant(right)

    def compared(table: pa.Table) -> _Value:
        column = one(table)
        if not kind(column.type):
            raise _Unknown
        return pc.call_function(name, [column, _scalar(value, column.type)])

    return compared


def _compared(name: str, left: _Of, right: _Of, table: pa.Table) -> _Value:
    a, b = left(table), right(table)
    if a.type != b.type or not any(kind(a.type) for kind in _KINDS):
        raise _Unknown
    return pc.call_function(name, [a, b])


def _operand(operand: exp.Expr) -> _Of:
    node = operand.unnest()
    if not isinstance(node, exp.Column) or node.table:
        raise _Unknown
    name = node.name

    def column(table: pa.Table) -> pa.ChunkedArray:
        return table.column(name)

    return column


def _is_integer(typ: pa.DataType) -> bool:
    return bool(pa.types.is_signed_integer(typ))


_KINDS: tuple[Callable[[pa.DataType], bool], ...] = (
    _is_integer,
    pa.types.is_string,
    pa.types.is_date32,
    pa.types.is_decimal128,
)


def _constant(node: exp.Expr) -> tuple[Callable[[pa.DataType], bool], Any]:
    """A constant, and of which types the columns are that it is compared with.

    Raises:
        _Unknown: it is something else.
    """
    if isinstance(node, exp.Literal) and not node.is_string and node.this.isdigit():
        return _is_integer, int(node.this)
    if not isinstance(node, exp.Cast) or isinstance(node, exp.TryCast):
        raise _Unknown
    literal, to = node.this, node.to
    if not isinstance(literal, exp.Literal) or not literal.is_string:
        raise _Unknown
    if to.this is exp.DType.TEXT and not to.expressions:
        return pa.types.is_string, literal.this
    if to.this is exp.DType.DATE:
        return pa.types.is_date32, _date(literal.this)
    if to.this is exp.DType.DECIMAL and len(to.expressions) == 2:
        precision, scale = (int(one.name) for one in to.expressions)
        typ = pa.decimal128(precision, scale)
        return lambda column: column == typ, _decimal(literal.this, scale)
    raise _Unknown


def _date(text: str) -> datetime.date:
    try:
        return datetime.date.fromisoformat(text)
    except ValueError:
        raise _Unknown from None


def _decimal(text: str, scale: int) -> Decimal:
    whole, _, digits = text.removeprefix("-").partition(".")
    # What has more digits would be rounded.
    if not (whole + digits).isdigit() or not whole.isascii() or len(digits) > scale:
        raise _Unknown
    return Decimal(text)


@functools.lru_cache(maxsize=4096)
def _scalar(value: Any, typ: pa.DataType) -> pa.Scalar:
    """The constant as a column's type has it.

    Raises:
        _Unknown: it is not among the type's values.
    """
    try:
        return pa.scalar(value, typ)
    except (pa.ArrowInvalid, OverflowError):
        raise _Unknown from None
