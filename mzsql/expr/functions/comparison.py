"""Comparisons and boolean logic.

Promise: floats compare as PostgreSQL does (NaN equals itself and is the greatest, -0 equals 0), text by its bytes (C collation),
intervals by months, then days, then microseconds as Materialize does; both engines agree on all of it natively. `and` and `or` are
three-valued, and an error on one side does not count when the other side decides (`mzsql.expr.spell`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, asts, of
from mzsql.expr.functions.number.numeric import common_numeric
from mzsql.expr.functions.table import Engine, ScalarFunc, Spelling, Sql
from mzsql.repr.types import BOOLEAN, SqlType

#: Every kind whose values have an order.
ORDERABLE = (
    "boolean",
    "smallint",
    "integer",
    "bigint",
    "uint2",
    "uint4",
    "uint8",
    "oid",
    "real",
    "double",
    "numeric",
    "text",
    "varchar",
    "char",
    "bytea",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "interval",
    "uuid",
    "mz_timestamp",
)

#: Symbol, negation and spelling of each comparison.
OPERATORS: dict[str, tuple[str, str, Callable[[Ast, Ast], Ast]]] = {
    "eq": ("=", "not_eq", s.eq),
    "not_eq": ("!=", "eq", s.neq),
    "lt": ("<", "gte", s.lt),
    "lte": ("<=", "gt", s.lte),
    "gt": (">", "lte", s.gt),
    "gte": (">=", "lt", s.gte),
}


def _comparison(op: str, kind: str) -> ScalarFunc:
    symbol, negation, build = OPERATORS[op]

    def value(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        left, right = (arg.ast for arg in args)
        if kind == "numeric" and args[0].typ.effective_scale != args[1].typ.effective_scale:
            return _numeric_comparison(build, args)
        if kind == "char" and args[0].typ != args[1].typ:
            # Blanks at the end do not count: chars of one length have the same number of them.
            left, right = s.call("RTRIM", left), s.call("RTRIM", right)
        return build(left, right)

    return ScalarFunc(
        key=f"{op}_{kind}",
        name="<>" if symbol == "!=" else symbol,
        args=(of(kind), of(kind)),
        result=BOOLEAN,
        value=value,
        explain=f"({{0}} {symbol} {{1}})",
        negation=f"{negation}_{kind}",
    )


def _numeric_comparison(build: Callable[[Ast, Ast], Ast], args: Sequence[Sql]) -> Ast:
    """Numerics of different scales: by the larger scale where both fit it.

    Where one does not fit the larger scale, its magnitude is beyond every value that the other one can have: its sign decides.
    """
    scale = max(arg.typ.effective_scale for arg in args)
    kind = s.decimal_type(38, scale)
    left, right = args
    coarse = left if left.typ.effective_scale < scale else right
    if isinstance(coarse.ast, exp.Literal):
        return build(left.ast, right.ast)
    rescaled = s.try_cast_to(coarse.ast, kind)
    sign = s.case((s.gt(coarse.ast, s.num(0)), s.num(1)), otherwise=s.num(-1))
    if coarse is left:
        same, beyond = build(rescaled, right.ast), build(sign, s.num(0))
    else:
        same, beyond = build(left.ast, rescaled), build(s.num(0), sign)
    unknown = s.or_(s.is_null(left.ast), s.is_null(right.ast))
    return s.case((s.or_(s.is_not_null(rescaled), unknown), same), otherwise=beyond)


def _logic() -> tuple[ScalarFunc, ...]:
    return (
        ScalarFunc(
            key="and",
            name="and",
            args=(),
            variadic=BOOLEAN,
            result=BOOLEAN,
            value=asts(s.and_),
            strict=False,
        ),
        ScalarFunc(
            key="or",
            name="or",
            args=(),
            variadic=BOOLEAN,
            result=BOOLEAN,
            value=asts(s.or_),
            strict=False,
        ),
        ScalarFunc(
            key="not",
            name="not",
            args=(BOOLEAN,),
            result=BOOLEAN,
            value=asts(s.not_),
            explain="NOT({0})",
        ),
        ScalarFunc(
            key="is_true",
            name="is_true",
            args=(BOOLEAN,),
            result=BOOLEAN,
            value=asts(lambda a: s.coalesce(a, s.boolean(False))),
            explain="({0}) IS TRUE",
            strict=False,
        ),
        ScalarFunc(
            key="is_false",
            name="is_false",
            args=(BOOLEAN,),
            result=BOOLEAN,
            value=asts(lambda a: s.coalesce(s.not_(a), s.boolean(False))),
            explain="({0}) IS FALSE",
            strict=False,
        ),
    )


#: The type of an argument that may be anything: `is_null`, `coalesce`, `greatest`, `least`, `count` take it.
ANY = SqlType("any")


def _common(args: Sequence[SqlType]) -> SqlType:
    """The type all branches share; for numerics the largest scale."""
    first = args[0]
    if first.kind == "numeric":
        return common_numeric(args)
    return first


def _extreme(function: str) -> Spelling:
    """Spark's and DuckDB's GREATEST and LEAST: NULLs are skipped; NaN is the greatest in both."""

    def value(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        given = [arg.ast for arg in args]
        return given[0].copy() if len(given) == 1 else s.call(function, *given)

    return value


FUNCTIONS: tuple[ScalarFunc, ...] = (
    *(_comparison(op, kind) for op in OPERATORS for kind in ORDERABLE),
    *(_comparison(op, "jsonb") for op in ("eq", "not_eq")),
    *_logic(),
    ScalarFunc(
        key="is_null",
        name="is_null",
        args=(ANY,),
        result=BOOLEAN,
        value=asts(s.is_null),
        explain="({0}) IS NULL",
        strict=False,
    ),
    ScalarFunc(
        key="coalesce",
        name="coalesce",
        args=(),
        variadic=ANY,
        result=_common,
        value=asts(s.coalesce),
        strict=False,
    ),
    ScalarFunc(
        key="greatest",
        name="greatest",
        args=(),
        variadic=ANY,
        result=_common,
        value=_extreme("GREATEST"),
        strict=False,
    ),
    ScalarFunc(
        key="least",
        name="least",
        args=(),
        variadic=ANY,
        result=_common,
        value=_extreme("LEAST"),
        strict=False,
    ),
)
