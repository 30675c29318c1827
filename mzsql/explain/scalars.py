"""Scalars, aggregates, orders and column lists as EXPLAIN prints them.

Promise: text only, from the plan's own structs; a function has the name in its row of the table of functions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from mzsql.explain.constants import constant_text, quoted
from mzsql.explain.function_names import plan_name, template, with_constant
from mzsql.expr import functions
from mzsql.expr.canonical import by_cost, rank
from mzsql.expr.functions.aggregate import windows
from mzsql.expr.mfp import MapFilterProject, placed
from mzsql.expr.scalar import (
    AggregateExpr,
    Call,
    Column,
    ColumnOrder,
    If,
    Literal,
    LiteralError,
    Scalar,
    Unmaterializable,
)
from mzsql.repr.datum import Datum
from mzsql.repr.types import ColumnType, SqlType

REDACTED = "█"
_VARIADIC = {"and": " AND ", "or": " OR "}


def aggregate_name(key: str) -> str:
    """An aggregate's name in EXPLAIN, with its order where it has one."""
    window = windows.parse(key)
    if window is not None and window.kind == "aggregate":
        return window.shown(aggregate_name(window.func))
    if window is not None and window.func == windows.FUSED["aggregate"]:
        return window.func
    return key if "[" in key else functions.aggregate(key).name


#: Functions named by their argument type: ``extract_year_d``.
_BY_TYPE = ("extract_", "date_part_", "date_trunc_")
#: IS tests, by function.
_IS = {"is_null": "NULL", "is_true": "TRUE", "is_false": "FALSE"}
#: Functions whose arguments are in brackets.
_BRACKETS = ("array", "list")

#: A sort key in the name of an ordered aggregate.
_ORDERED_BY = re.compile(r"#(\d+)(?= (?:asc|desc) )")


#: A constant in a function's printed form.
_CONSTANT = re.compile(r'"[^"]*"')


def shown_name(func: functions.ScalarFunc) -> str:
    """A function's name in EXPLAIN; a cast is named by its types."""
    by_type = func.name == "cast" or func.name.startswith(_BY_TYPE)
    return plan_name(func.key, func.key if by_type else func.name)


class ScalarPrinter:
    """Prints expressions over a relation's columns."""

    def __init__(
        self,
        *,
        redacted: bool = False,
        names: Sequence[str] = (),
        only_names: bool = False,
        as_written: bool = False,
    ) -> None:
        self._redacted = redacted
        self._as_written = as_written
        self._names = names
        self._only_names = only_names

    def naming(self, names: Sequence[str]) -> ScalarPrinter:
        """This printer for expressions over columns with these names."""
        return ScalarPrinter(redacted=self._redacted, names=names, as_written=self._as_written)

    def column(self, index: int) -> str:
        """A column, with its name where it has one: ``#1{price}``."""
        name = self._names[index] if index < len(self._names) else ""
        if name and self._only_names:
            return name
        return f"#{index}{{{name}}}" if name else f"#{index}"

    def columns(self, indexes: Sequence[int]) -> str:
        """Columns; three or more consecutive ones are printed as ``#0..=#2``."""
        parts: list[str] = []
        start = 0
        while start < len(indexes):
            end = start
            while end + 1 < len(indexes) and indexes[end + 1] == indexes[end] + 1:
                end += 1
            if end - start >= 2:
                parts.append(f"{self.column(indexes[start])}..={self.column(indexes[end])}")
            else:
                parts.extend(self.column(indexes[i]) for i in range(start, end + 1))
            start = end + 1
        return ", ".join(parts)

    def order(self, order_key: Iterable[ColumnOrder]) -> str:
        """An ORDER BY: ``#1 asc nulls_last, #0 desc nulls_first``."""
        return ", ".join(
            f"{self.column(o.column)} {'desc' if o.desc else 'asc'} "
            f"{'nulls_last' if o.nulls_last else 'nulls_first'}"
            for o in order_key
        )

    def datum(self, value: Datum, typ: SqlType) -> str:
        """A constant."""
        if self._redacted:
            return REDACTED
        return constant_text(value, typ)

    def row(self, values: Sequence[Datum], columns: Sequence[ColumnType]) -> str:
        """A row: its constants in parentheses."""
        parts = (self.datum(v, c.type) for v, c in zip(values, columns, strict=True))
        return f"({', '.join(parts)})"

    def scalar(self, expr: Scalar) -> str:
        """An expression."""
        match expr:
            case Column(index=index):
                return self.column(index)
            case Literal(value=value, typ=typ):
                return self.datum(value, typ)
            case LiteralError(message=message):
                return f"error({REDACTED if self._redacted else quoted(message)})"
            case Unmaterializable(func=func):
                return f"{func}()"
            case If(condition=c, then=t, otherwise=o):
                return f"case when {self.scalar(c)} then {self.scalar(t)} else {self.scalar(o)} end"
            case Call():
                return self._call(expr)

    def _call(self, expr: Call) -> str:
        match expr:
            case Call(func="not", args=(Call(func=key, args=(inner,)),)) if key in _IS:
                return f"({self.scalar(inner)}) IS NOT {_IS[key]}"
            case Call(func=key, args=args) if key in _VARIADIC:
                return f"({_VARIADIC[key].join(self.scalar(arg) for arg in args)})"
        if not self._as_written:
            known = with_constant(expr.func, expr.args, self.scalar, self._bare)
            if known is not None:
                return known
        args_text = [self.scalar(arg) for arg in expr.args]
        func = functions.scalar(expr.func)
        if form := template(func.key) or func.explain:
            return (_CONSTANT.sub(REDACTED, form) if self._redacted else form).format(*args_text)
        if func.key in _BRACKETS:
            return f"{func.key}[{', '.join(args_text)}]"
        return f"{shown_name(func)}({', '.join(args_text)})"

    def _bare(self, literal: Literal) -> str:
        """A text without quotes."""
        return REDACTED if self._redacted else str(literal.value)

    def scalars(self, exprs: Iterable[Scalar]) -> str:
        """Expressions, separated by commas."""
        return ", ".join(self.scalar(expr) for expr in exprs)

    def key(self, key: Iterable[Scalar]) -> str:
        """An arrangement's key in brackets."""
        return f"[{self.listed(key)}]"

    def listed(self, exprs: Iterable[Scalar]) -> str:
        """Expressions, with three or more consecutive columns abbreviated."""
        parts: list[str] = []
        run: list[int] = []
        for expr in exprs:
            if isinstance(expr, Column):
                run.append(expr.index)
                continue
            if run:
                parts.append(self.columns(run))
                run = []
            parts.append(self.scalar(expr))
        if run:
            parts.append(self.columns(run))
        return ", ".join(parts)

    def aggregate(self, aggregate: AggregateExpr) -> str:
        """An aggregate: ``sum(#1)``, ``count(distinct #0)``, ``count(*)``."""
        name = aggregate_name(aggregate.func)
        if name == "count" and isinstance(aggregate.expr, Literal) and aggregate.expr.value is True:
            return "count(*)"
        distinct = "distinct " if aggregate.distinct else ""
        if self._names:
            name = _ORDERED_BY.sub(lambda found: self.column(int(found[1])), name)
        return f"{name}({distinct}{self.scalar(aggregate.expr)})"

    def mfp_lines(self, mfp: MapFilterProject) -> list[str]:
        """The attribute lines of an MFP: project, filter, map, each only where it does something."""
        lines: list[str] = []
        if mfp.projection != tuple(range(mfp.input_arity)):
            lines.append(f"project=({columns(mfp.projection)})")
        if mfp.predicates:
            preds = " AND ".join(self.scalar(p) for _, p in shown_in_mfp(mfp.predicates))
            lines.append(f"filter=({preds})")
        if mfp.expressions:
            lines.append(f"map=({self.scalars(mfp.expressions)})")
        return lines


def shown(predicates: Iterable[Scalar]) -> list[Scalar]:
    """A Filter's predicates in the order in which a plan shows them: cheap ones first, even where a predicate that can
    fail is evaluated after others that may drop the row.
    """
    return sorted(predicates, key=by_cost)


def shown_in_mfp(predicates: Iterable[tuple[int, Scalar]]) -> list[tuple[int, Scalar]]:
    """An MFP's predicates in that order: as early as they can be evaluated, each with the number of columns that it
    needs.
    """
    return sorted((placed(pred) for _, pred in predicates), key=lambda at: (at[0], rank(at[1])))


def order(order_key: Iterable[ColumnOrder]) -> str:
    """An ORDER BY over columns without names."""
    return _UNNAMED.order(order_key)


def columns(indexes: Sequence[int]) -> str:
    """Columns without names."""
    return _UNNAMED.columns(indexes)


_UNNAMED = ScalarPrinter()
