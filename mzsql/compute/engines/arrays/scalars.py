"""Expressions of DuckDB's SQL as functions of rows.

Promise: `compiled` returns a function that computes for each row what DuckDB does, or raises `Unsupported`, at once
for what is never known here, or when it is called for what depends on types and values.
"""

from __future__ import annotations

import datetime
import functools
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import expressions as exp

from mzsql.compute.engines.arrays import operations as ops
from mzsql.compute.engines.arrays.vectors import (
    Kind,
    Places,
    Unsupported,
    Vector,
    integer,
    null,
    truth,
)


@dataclass
class Run:
    """One run of a statement.

    Attributes:
        tables: the relations.
        parameters: values of the parameters.
        words: texts that occur in the statement.
        columns: names of all columns that may be read.
        cells: what was computed so far.
        texts: columns of texts, and those of the statement.
    """

    tables: Mapping[str, pa.Table]
    parameters: Mapping[str, int]
    words: tuple[str, ...]
    columns: frozenset[str]
    cells: dict[Cell, Any] = field(default_factory=dict)
    texts: dict[str, Vector] = field(default_factory=dict)
    _dictionary: pa.Array | None = None
    _ranks: Places | None = None

    @property
    def dictionary(self) -> pa.Array:
        """All texts of the run, each once."""
        if self._dictionary is None:
            self._encode()
        return self._dictionary

    def table(self, name: str) -> pa.Table:
        """A relation.

        Raises:
            Unsupported: there is none of that name.
        """
        try:
            return self.tables[name]
        except KeyError:
            raise Unsupported from None

    def text(self, table: str, column: str) -> Vector:
        """A column of texts."""
        if self._dictionary is None:
            self._encode()
        return self.texts[f"{table}.{column}"]

    def word(self, text: str) -> Vector:
        """A text of the statement, for all rows."""
        if self._dictionary is None:
            self._encode()
        return self.texts[f"'{text}"]

    def ordered(self, value: Vector) -> Vector:
        """A value in a form whose order is that of its numbers."""
        return self.ranks(value) if value.kind is Kind.TEXT else value

    def ranks(self, texts: Vector) -> Vector:
        """For each text a number; the numbers have the texts' order."""
        if self._ranks is None:
            order = pc.sort_indices(self.dictionary).to_numpy()
            self._ranks = np.empty(len(order), np.int64)
            self._ranks[order] = np.arange(len(order))
        most = len(self._ranks)
        ranks = self._ranks[texts.values] if most else texts.values
        return Vector(Kind.INTEGER, ranks, texts.nulls, most)

    def _encode(self) -> None:
        """Make the dictionary, of all texts at once."""
        arrays, names = [pa.array(self.words, pa.string())], [""]
        for table, one in self.tables.items():
            for at, found in enumerate(one.schema):
                if found.name in self.columns and pa.types.is_string(found.type):
                    arrays.append(one_chunk(one.column(at)))
                    names.append(f"{table}.{found.name}")
        encoded = pa.concat_arrays(arrays).dictionary_encode()
        places, nulls = encoded.indices, None
        if places.null_count:
            nulls = places.is_null().to_numpy(zero_copy_only=False)
            places = places.fill_null(0)
        codes, at = places.to_numpy().astype(np.int64), 0
        for name, array in zip(names, arrays, strict=True):
            span = slice(at, at + len(array))
            missing = nulls[span] if nulls is not None and array.null_count else None
            self.texts[name] = Vector(Kind.TEXT, codes[span], missing)
            at += len(array)
        for number, word in enumerate(self.words):
            self.texts[f"'{word}"] = Vector(Kind.TEXT, codes[number : number + 1])
        self._dictionary = encoded.dictionary


def one_chunk(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


class Cell:
    """A value that a run computes once, when it is first asked for."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Callable[[Run], Any]) -> None:
        self._compute = compute

    def __call__(self, run: Run) -> Any:
        """The value in a run."""
        known = run.cells.get(self)
        if known is None:
            known = run.cells[self] = self._compute(run)
        return known


class Shared(Cell):
    """As a cell, for an expression that may occur again: its value for each row, or one for all."""

    __slots__ = ()


class Scope(Protocol):
    """What columns' names mean.

    Attributes:
        shared: expressions that occurred before.
    """

    shared: dict[exp.Expr, Shared]

    def cell(self, name: str, /) -> Scalar:
        """A column, with a value for each row.

        Raises:
            Unsupported: there is none of that name.
        """


#: An expression: its value for each row, or one for all.
Scalar: TypeAlias = Callable[["Run"], Vector]
#: Expressions that a SELECT has to know itself: returns None for others.
Special: TypeAlias = Callable[[exp.Expr], Scalar | None]

_COMPARISONS: dict[type[exp.Expr], ops.Comparison] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
}
_BINARY: dict[type[exp.Expr], Callable[[Vector, Vector], Vector]] = {
    exp.Add: ops.added,
    exp.Sub: ops.subtracted,
    exp.Mul: ops.multiplied,
    exp.IntDiv: ops.divided,
    exp.And: ops.both,
    exp.Or: ops.any_of,
    exp.NullSafeEQ: ops.same,
    exp.NullSafeNEQ: lambda one, other: ops.inverted(ops.same(one, other)),
}
_UNARY: dict[type[exp.Expr], Callable[[Vector], Vector]] = {
    exp.Not: ops.inverted,
    exp.Neg: ops.negated,
}
_MANY: dict[type[exp.Expr], Callable[[list[Vector]], Vector]] = {
    exp.Coalesce: ops.first_of,
    exp.Greatest: functools.partial(ops.extreme, operator.gt),
    exp.Least: functools.partial(ops.extreme, operator.lt),
}


def _nothing_special(_: exp.Expr) -> Scalar | None:
    return None


def compiled(node: exp.Expr, scope: Scope, special: Special = _nothing_special) -> Scalar:
    """An expression as a function.

    Raises:
        Unsupported: it is not known here.
    """
    if isinstance(node, exp.Paren):
        return compiled(node.this, scope, special)
    if isinstance(node, exp.Column | exp.Literal):
        return _made(node, scope, special)
    known = scope.shared.get(node)
    if known is None:
        known = scope.shared[node] = Shared(_made(node, scope, special))
    return known


def _made(node: exp.Expr, scope: Scope, special: Special) -> Scalar:
    known = special(node)
    if known is not None:
        return known
    inner = functools.partial(compiled, scope=scope, special=special)
    kind = type(node)
    if isinstance(node, exp.Column):
        return scope.cell(named(node))
    if kind in _BINARY:
        return _applied(_BINARY[kind], inner(node.this), inner(node.expression))
    if kind in _COMPARISONS:
        return _comparison(_COMPARISONS[kind], inner(node.this), inner(node.expression))
    if kind in _UNARY:
        return _applied(_UNARY[kind], inner(node.this))
    if kind in _MANY:
        parts = [inner(one) for one in (node.this, *node.expressions)]
        function = _MANY[kind]
        return lambda run: function([part(run) for part in parts])
    made = _others(node, inner)
    if made is None:
        raise Unsupported
    return made


def _others(node: exp.Expr, inner: Callable[[exp.Expr], Scalar]) -> Scalar | None:
    match node:
        case exp.Literal() | exp.Boolean() | exp.Null():
            return _literal(node)
        case exp.Placeholder() | exp.Parameter():
            name = node.name
            return lambda run: integer(run.parameters[name], 64)
        case exp.Is():
            return _is(node, inner)
        case exp.Between():
            low, high = inner(node.args["low"]), inner(node.args["high"])
            return _between(inner(node.this), low, high)
        case exp.Case():
            return _case(node, inner)
        case exp.Cast() if not isinstance(node, exp.TryCast):
            return _cast(node, inner)
    return None


def named(node: exp.Column) -> str:
    """A column's name, with that of its side if it is written."""
    return f"{node.table}.{node.name}" if node.table else node.name


def _applied(function: Callable[..., Vector], *parts: Scalar) -> Scalar:
    if len(parts) == 1:
        (only,) = parts
        return lambda run: function(only(run))
    one, other = parts
    return lambda run: function(one(run), other(run))


def _comparison(operation: ops.Comparison, one: Scalar, other: Scalar) -> Scalar:
    ordered = operation not in (operator.eq, operator.ne)

    def compared(run: Run) -> Vector:
        left, right = one(run), other(run)
        if ordered and left.kind is Kind.TEXT and right.kind is Kind.TEXT:
            left, right = run.ranks(left), run.ranks(right)
        return ops.compared(operation, left, right)

    return compared


def _between(value: Scalar, low: Scalar, high: Scalar) -> Scalar:
    above = _comparison(operator.ge, value, low)
    return _applied(ops.both, above, _comparison(operator.le, value, high))


def _is(node: exp.Is, inner: Callable[[exp.Expr], Scalar]) -> Scalar:
    if not isinstance(node.expression, exp.Null):
        raise Unsupported
    return _applied(ops.is_null, inner(node.this))


def _case(node: exp.Case, inner: Callable[[exp.Expr], Scalar]) -> Scalar:
    if node.this is not None:
        raise Unsupported
    branches = [(inner(one.this), inner(one.args["true"])) for one in node.args["ifs"]]
    default = node.args.get("default")
    last = inner(default) if default is not None else _always(null())

    def case(run: Run) -> Vector:
        made = last(run)
        for condition, then in reversed(branches):
            made = ops.chosen(ops.holds(condition(run)), then(run), made)
        return made

    return case


def _always(value: Vector) -> Scalar:
    return lambda _: value


def _literal(node: exp.Expr) -> Scalar:
    if isinstance(node, exp.Null):
        return _always(null())
    if isinstance(node, exp.Boolean):
        return _always(truth(np.array([bool(node.this)])))
    if node.is_string:
        text = node.this
        return lambda run: run.word(text)
    if not node.this.isdigit():
        raise Unsupported
    return _always(integer(int(node.this)))


_INTEGERS = {
    exp.DType.SMALLINT: 16,
    exp.DType.INT: 32,
    exp.DType.BIGINT: 64,
    exp.DType.INT128: 128,
}
_OTHERS = {
    exp.DType.DATE: (Kind.DATE, 32),
    exp.DType.TIMESTAMPNTZ: (Kind.TIMESTAMP, 64),
    exp.DType.TEXT: (Kind.TEXT, 64),
    exp.DType.BOOLEAN: (Kind.BOOLEAN, 64),
}


def _cast(node: exp.Cast, inner: Callable[[exp.Expr], Scalar]) -> Scalar:
    """A cast, of a constant or of what changes the form of a value only.

    Raises:
        Unsupported: it is another one.
    """
    to, value, digits = node.to.this, node.this, 0
    if to is exp.DType.DECIMAL and len(node.to.expressions) == 2:
        digits, size = (int(one.name) for one in node.to.expressions)
        kind = Kind.DECIMAL
    elif node.to.expressions:
        raise Unsupported
    elif to in _INTEGERS:
        kind, size = Kind.INTEGER, _INTEGERS[to]
    elif to in _OTHERS:
        kind, size = _OTHERS[to]
    else:
        if isinstance(value, exp.Null):
            return _always(null())
        raise Unsupported
    if isinstance(value, exp.Literal) and (value.is_string or not value.this.isdigit()):
        return _constant(value, kind, size, digits)
    part = inner(value)
    if isinstance(value, exp.Literal | exp.Null):
        # In a run of its own: one of the module would remember the values of all statements for ever.
        return _always(ops.cast(part(Run({}, {}, (), frozenset())), kind, size, digits))
    return lambda run: ops.cast(part(run), kind, size, digits)


def _constant(value: exp.Literal, kind: Kind, size: int, digits: int) -> Scalar:
    text = value.this
    if kind is Kind.TEXT and value.is_string:
        return lambda run: run.word(text)
    if kind is Kind.DECIMAL:
        return _always(_decimal(text, size, digits))
    if not value.is_string or kind not in (Kind.DATE, Kind.TIMESTAMP):
        raise Unsupported
    try:
        if kind is Kind.DATE:
            day = datetime.date.fromisoformat(text) - datetime.date(1970, 1, 1)
            return _always(Vector(kind, np.array([day.days]), None, abs(day.days), size))
        moment = datetime.datetime.fromisoformat(text) - datetime.datetime(1970, 1, 1)
    except (ValueError, TypeError):
        raise Unsupported from None
    micros = moment // datetime.timedelta(microseconds=1)
    return _always(Vector(kind, np.array([micros]), None, abs(micros), size))


def _decimal(text: str, scale: int, digits: int) -> Vector:
    number = Decimal(text)
    sign, places, exponent = number.as_tuple()
    if not isinstance(exponent, int) or -exponent > scale:
        raise Unsupported
    value = int("".join(map(str, places))) * 10 ** (scale + exponent) * (-1 if sign else 1)
    if abs(value) >= 10**digits:
        raise Unsupported
    made = integer(value, 128)
    return Vector(Kind.DECIMAL, made.values, None, made.most, scale)
