"""Syntax of the SQL standard and PostgreSQL that is planned as another expression: OVERLAPS, SIMILAR TO, `substring(…
FROM pattern)`, `num_nulls`, ….

Promise: each has the meaning in PostgreSQL's documentation, by operators and functions of the table of functions, so
every engine can compute it and a plan shows the expression. The trade-off: an operand may occur in it several times.
Patterns of SIMILAR TO must be constants, since they are rewritten to regular expressions here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import reduce
from typing import Any

from sqlglot import expressions as exp

from mzsql.expr.scalar import Literal, LiteralError
from mzsql.frontend import hir
from mzsql.frontend.scalar.coerce import (
    Typed,
    call,
    cast,
    explicit,
    function_call,
    integer,
    operator_call,
    settle,
)
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.defined import filled
from mzsql.frontend.scalar.nodes import combine, function_name, negate, position_of
from mzsql.repr import types as t
from mzsql.repr.errors import DataError, SqlSyntaxError, UndefinedFunction, Unsupported
from mzsql.repr.types import type_name

_POINTS = ("date", "time", "timestamp", "timestamptz")


def _null_test(value: Typed) -> Typed:
    return call("is_null", [settle(value)])


def _choose(condition: Typed, then: Typed, otherwise: Typed) -> Typed:
    """A CASE of two values of the same type."""
    expr = hir.If(condition.expr, then.expr, otherwise.expr)
    return Typed(expr, otherwise.typ, then.nullable or otherwise.nullable)


def _unlike(name: str, args: list[Typed], position: int | None) -> UndefinedFunction:
    shown = ", ".join(type_name(a.typ) for a in args)
    return UndefinedFunction(f"function {name}({shown}) does not exist", position=position)


# --- OVERLAPS ------------------------------------------------------------------------------------


def _overlaps(ctx: ExprContext, node: exp.Expr) -> Typed:
    """Whether two time spans overlap; a span is two points in any order, or a point and an interval."""
    position = position_of(node)
    ends: list[list[Typed]] = []
    for side in (node.this, node.expression):
        if not isinstance(side, exp.Tuple) or len(side.expressions) != 2:
            raise SqlSyntaxError(
                "wrong number of parameters on OVERLAPS expression", position=position
            )
        ends.append(_points([ctx.plan(e) for e in side.expressions], position))
    (a, b), (c, d) = ((call("least", points), call("greatest", points)) for points in ends)
    later = _of_starts(">", (a, b), (c, d), position)
    earlier = _of_starts(">", (c, d), (a, b), position)
    # If one begins within the other they overlap, even with an unknown end; if both begin at the same time, only if no
    # end is NULL.
    unknown = combine("or", [_null_test(end) for side in ends for end in side])
    null = Typed(Literal(None, t.BOOLEAN), t.BOOLEAN, True)
    true = Typed(Literal(True, t.BOOLEAN), t.BOOLEAN, False)
    together = operator_call("=", [a, c], position)
    return _choose(combine("or", [later, earlier]), true, _choose(unknown, null, together))


def _points(ends: list[Typed], position: int | None) -> list[Typed]:
    """Both ends of a span as values of one type."""
    first, second = ends
    if second.typ.kind == "interval":
        second = operator_call("+", [first, second], position)
    known = next((e.typ for e in (first, second) if e.typ.kind in _POINTS), None)
    if known is None:
        raise _unlike("overlaps", ends, position)
    return [explicit(e, known, position) if e.typ != known else e for e in (first, second)]


def _of_starts(
    symbol: str, one: tuple[Typed, Typed], other: tuple[Typed, Typed], position: int | None
) -> Typed:
    begins_later = operator_call(symbol, [one[0], other[0]], position)
    return combine("and", [begins_later, operator_call("<", [one[0], other[1]], position)])


# --- patterns ------------------------------------------------------------------------------------


def similar_to(ctx: ExprContext, node: exp.Expr, escape: str = "\\") -> Typed:
    """`text SIMILAR TO pattern`.

    Raises:
        Unsupported: the pattern is not a constant.
    """
    if not node.expression.is_string:
        raise Unsupported(
            "SIMILAR TO with a pattern that is not a literal is not supported",
            position=position_of(node),
        )
    pattern = Literal(similar_pattern(node.expression.name, escape), t.TEXT)
    operands = [ctx.plan(node.this), Typed(pattern, t.TEXT, False)]
    return operator_call("~", operands, position_of(node))


def similar_pattern(pattern: str, escape: str = "\\") -> str:
    """A pattern of SIMILAR TO as a regular expression that matches the whole text.

    Raises:
        DataError: it ends with the escape character (22025).
    """
    (whole,) = _pieces(pattern, escape, cut=False)
    return f"^(?:{whole})$"


def _pieces(pattern: str, escape: str, *, cut: bool) -> list[str]:
    """A pattern of SIMILAR TO as regular expressions, with ``cut`` split at escaped double quotes."""
    pieces: list[str] = []
    out: list[str] = []
    letters = iter(pattern)
    bracket = False
    for letter in letters:
        if letter == escape and escape:
            following = next(letters, None)
            if following is None:
                raise DataError(
                    "SIMILAR TO pattern must not end with escape character", sqlstate="22025"
                )
            if cut and following == '"':
                pieces.append("".join(out))
                out = []
                continue
            plain = following.isalnum() or following == "_"
            # After a backslash, a letter is an escape of PostgreSQL's regular expressions (`\m`).
            out.append(f"\\{following}" if escape == "\\" or not plain else following)
        elif bracket:
            bracket = letter != "]"
            out.append("\\\\" if letter == "\\" else letter)
        elif letter == "[":
            bracket = True
            out.append(letter)
        else:
            out.append(_MEANS.get(letter, letter))
    return [*pieces, "".join(out)]


def is_similar(node: exp.Expr) -> bool:
    """Whether `substring` with three operands takes a SIMILAR TO pattern and an escape character instead of positions."""
    start, length = node.args["start"], node.args["length"]
    if node.meta.get("similar"):
        return True
    return all(one.is_string and _INTEGER.fullmatch(one.name) is None for one in (start, length))


def substring_similar(
    text: Typed, pattern: exp.Expr, escape: exp.Expr, position: int | None
) -> Typed:
    """`substring(text SIMILAR pattern ESCAPE escape)`: the part between the two escaped double quotes of the pattern.

    Raises:
        Unsupported: pattern or escape character are not constants.
        DataError: one quote, or more than two (2200C); the escape is not one character (22019).
    """
    if not (pattern.is_string and escape.is_string):
        raise Unsupported(
            "substring SIMILAR with a pattern that is not a literal is not supported",
            position=position,
        )
    if len(escape.name) > 1:
        raise DataError(
            "invalid escape string",
            hint="Escape string must be empty or one character.",
            sqlstate="22019",
        )
    pieces = _pieces(pattern.name, escape.name, cut=True)
    if len(pieces) not in (1, 3):
        raise DataError(
            "SQL regular expression may not contain more than two escape-double-quote separators"
            if len(pieces) > 3
            else "SQL regular expression must contain two escape-double-quote separators",
            sqlstate="2200C",
        )
    if len(pieces) == 1:
        whole = f"^({pieces[0]})$"
    else:
        # The part before matches as little as possible, so that the wanted part begins early and is as long as
        # possible.
        before = _QUANTIFIER.sub(
            lambda found: found[0] if found[1] is None else f"{found[1]}?", pieces[0]
        )
        whole = f"^(?:{before})({pieces[1]})(?:{pieces[2]})$"
    return substring_of_pattern(text, Typed(Literal(whole, t.TEXT), t.TEXT, False), position)


#: Group 1 is a quantifier; escapes and brackets are matched to skip them.
_QUANTIFIER = re.compile(r"\\.|\[\^?\]?[^]]*\]|\(\?:|([*+?]|\{[0-9,]+\})")


_MEANS = {"%": ".*", "_": ".", "(": "(?:", ".": "\\.", "^": "\\^", "$": "\\$", "\\": "\\\\"}


_INTEGER = re.compile(r"\s*[-+]?\d+\s*")


def is_pattern(start: Typed) -> bool:
    """Whether the operand after FROM in `substring` is a pattern; a quoted literal may be a number."""
    if start.typ.kind == "unknown" and isinstance(start.expr, Literal):
        text = start.expr.value
        return isinstance(text, str) and _INTEGER.fullmatch(text) is None
    return start.typ.kind in ("text", "varchar", "char")


def substring_of_pattern(text: Typed, pattern: Typed, position: int | None) -> Typed:
    """The first match of a regular expression, or its first group."""
    found = function_call("regexp_match", [text, pattern], position)
    first = Typed(Literal(1, t.BIGINT), t.BIGINT, False)
    return call("array_get", [found, first])


def _regexp_like(ctx: ExprContext, node: exp.Expr) -> Typed:
    args = [ctx.plan(e) for e in node.expressions]
    position = position_of(node)
    symbol = "~"
    if len(args) == 3:
        flags = node.expressions[2]
        if not flags.is_string or flags.name.strip("ci"):
            raise Unsupported(
                "regexp_like with flags other than 'c' and 'i' is not supported", position=position
            )
        symbol = "~*" if flags.name.endswith("i") else "~"
    elif len(args) != 2:
        raise _unlike("regexp_like", args, position)
    return operator_call(symbol, args[:2], position)


def _starts_with(ctx: ExprContext, node: exp.Expr) -> Typed:
    args = [ctx.plan(node.this), ctx.plan(node.expression)]
    return function_call("starts_with", args, position_of(node))


# --- numbers -------------------------------------------------------------------------------------


def _root(name: str) -> Callable[[ExprContext, exp.Expr], Typed]:
    """``|/ x`` and ``||/ x``, of doubles."""

    def plan(ctx: ExprContext, node: exp.Expr) -> Typed:
        value = explicit(ctx.plan(node.this), t.DOUBLE, position_of(node))
        return function_call(name, [value], position_of(node))

    return plan


def _div(ctx: ExprContext, node: exp.Expr) -> Typed:
    """The integer part of a quotient: the value minus its remainder is divided, which leaves no fraction to round."""
    position = position_of(node)
    args = [ctx.plan(e) for e in node.expressions]
    numbers = [cast(a, t.NUMERIC, "implicit") for a in args]
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        raise _unlike("div", args, position)
    dividend, divisor = numbers[0], numbers[1]
    rest = operator_call("%", [dividend, divisor], position)
    whole = operator_call("-", [dividend, rest], position)
    return function_call("trunc", [operator_call("/", [whole, divisor], position)], position)


_THRESHOLDS = """CASE WHEN $1 IS NOT NULL AND $2 IS NOT NULL THEN (
    SELECT count(*)::integer FROM unnest($2) AS mz_thresholds(mz_threshold) WHERE mz_threshold <= $1) END"""


def _width_bucket(ctx: ExprContext, node: exp.Expr) -> Typed:
    """The bucket of equal width that a number falls into: 0 below the range, one more than the count above it."""
    position = position_of(node)
    args = [ctx.plan(e) for e in node.expressions]
    if len(args) == 2 and args[1].typ.kind in ("array", "list"):
        # Thresholds are ascending, so those at or below the value come first.
        return ctx.plan(filled(_THRESHOLDS, node.expressions))
    if len(args) != 4:
        raise _unlike("width_bucket", args, position)
    floats = any(a.typ.kind in ("real", "double") for a in args[:3])
    number = t.DOUBLE if floats else t.NUMERIC
    value, low, high = (explicit(a, number, position) for a in args[:3])
    count = explicit(args[3], t.INTEGER, position)

    def op(symbol: str, left: Typed, right: Typed) -> Typed:
        return operator_call(symbol, [left, right], position)

    buckets = explicit(count, number, position)
    share = op("/", op("*", op("-", value, low), buckets), op("-", high, low))
    inside = op(
        "+", explicit(function_call("floor", [share], position), t.INTEGER, position), integer(1)
    )
    above = op("+", count, integer(1))
    rising = op("<", low, high)
    below_all = _choose(rising, op("<", value, low), op(">", value, low))
    above_all = _choose(rising, op(">=", value, high), op("<=", value, high))
    found = _choose(below_all, integer(0), _choose(above_all, above, inside))
    equal = Typed(LiteralError("lower bound cannot equal upper bound", t.INTEGER), t.INTEGER, False)
    few = Typed(LiteralError("count must be greater than zero", t.INTEGER), t.INTEGER, False)
    checked = _choose(op("=", low, high), equal, found)
    checked = _choose(op("<=", count, integer(0)), few, checked)
    missing = combine("or", [_null_test(a) for a in (value, low, high, count)])
    null = Typed(Literal(None, t.INTEGER), t.INTEGER, True)
    return _choose(missing, null, checked)


def _null_count(ctx: ExprContext, node: exp.Expr) -> Typed:
    """num_nulls and num_nonnulls."""
    args = [ctx.plan(e) for e in node.expressions]
    if not args:
        raise _unlike(function_name(node), args, position_of(node))
    tests = [_null_test(a) for a in args]
    if function_name(node) == "num_nonnulls":
        tests = [negate(test) for test in tests]
    counts = [_choose(test, integer(1), integer(0)) for test in tests]
    return reduce(lambda a, b: operator_call("+", [a, b], position_of(node)), counts)


# --- dates ---------------------------------------------------------------------------------------


def _is_finite(ctx: ExprContext, node: exp.Expr) -> Typed:
    """isfinite: dates, times and intervals have no infinite values here, so it is true for all but NULL."""
    args = [ctx.plan(e) for e in node.expressions]
    if len(args) != 1 or args[0].typ.kind not in ("date", "timestamp", "timestamptz", "interval"):
        raise _unlike("isfinite", args, position_of(node))
    null = Typed(Literal(None, t.BOOLEAN), t.BOOLEAN, True)
    return _choose(_null_test(args[0]), null, Typed(Literal(True, t.BOOLEAN), t.BOOLEAN, False))


def _make_date(ctx: ExprContext, node: exp.Expr) -> Typed:
    """make_date; years BC are negative, and there is no year 0."""
    position = position_of(node)
    args = [ctx.plan(e) for e in node.expressions]
    parts = [cast(a, t.INTEGER, "implicit") for a in args]
    if len(parts) != 3 or any(part is None for part in parts):
        raise _unlike("make_date", args, position)
    year, month, day = (part for part in parts if part is not None)
    zero = integer(0)
    later = operator_call("+", [year, integer(1)], position)
    # In astronomical years the year before 1 is 0.
    counted = _choose(operator_call("<", [year, zero], position), later, year)
    second = Typed(Literal(0.0, t.DOUBLE), t.DOUBLE, False)
    made = function_call("make_timestamp", [counted, month, day, zero, zero, second], position)
    made = explicit(made, t.DATE, position)
    fails = Typed(LiteralError("date field value out of range", t.DATE), t.DATE, False)
    return _choose(operator_call("=", [year, zero], position), fails, made)


#: Functions planned as other expressions.
CALLS: dict[str, Callable[[ExprContext, exp.Expr], Typed]] = {
    "div": _div,
    "isfinite": _is_finite,
    "make_date": _make_date,
    "num_nonnulls": _null_count,
    "num_nulls": _null_count,
    "regexp_like": _regexp_like,
    "width_bucket": _width_bucket,
}
#: This module's handlers.
HANDLERS: dict[type[exp.Expr], Callable[[ExprContext, Any], Typed]] = {
    exp.Overlaps: _overlaps,
    exp.SimilarTo: similar_to,
    exp.StartsWith: _starts_with,
    exp.Sqrt: _root("sqrt"),
    exp.Cbrt: _root("cbrt"),
}
