"""Comparisons and boolean logic.

Promise: floats compare as in PostgreSQL (NaN equals itself and is greatest, -0 equals 0), texts by bytes (C collation),
intervals by months, days, microseconds as in Materialize; both engines do so natively. AND and OR are three-valued, and
an error on one side does not count where the other side decides (`mzsql.expr.spell`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, asts, of
from mzsql.expr.functions.number.numeric import common_numeric
from mzsql.expr.functions.table import Engine, ScalarFunc, Spelling, Sql
from mzsql.repr.types import BOOLEAN, SqlType

#: The kinds whose values are ordered.
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

#: The symbol, the negation and the spelling of each comparison.
OPERATORS: dict[str, tuple[str, str, Callable[[Ast, Ast], Ast]]] = {
    "eq": ("=", "not_eq", s.eq),
    "not_eq": ("!=", "eq", s.neq),
    "lt": ("<", "gte", s.lt),
    "lte": ("<=", "gt", s.lte),
    "gt": (">", "lte", s.gt),
    "gte": (">=", "lt", s.gte),
}


def nested(op: str, engine: Engine, left: Ast, right: Ast) -> Ast:
    """A comparison of structs or lists, as which intervals, records, arrays and the like are kept."""
    made = OPERATORS[op][2](left, right)
    if engine is Engine.DUCKDB and op not in ("eq", "not_eq"):
        # DuckDB makes one BETWEEN of two bounds of a column, and has none for nested types ("Invalid type for BETWEEN").
        return s.neq(made, s.boolean(False))
    return made


def _comparison(op: str, kind: str) -> ScalarFunc:
    symbol, negation, build = OPERATORS[op]

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        left, right = (arg.ast for arg in args)
        if kind == "numeric" and args[0].typ.effective_scale != args[1].typ.effective_scale:
            return _numeric_comparison(build, args)
        if kind == "char" and args[0].typ != args[1].typ:
            # Trailing blanks do not count: chars of one declared length are padded to it.
            left, right = s.call("RTRIM", left), s.call("RTRIM", right)
        if kind == "interval":
            return nested(op, engine, left, right)
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
    """A comparison of numerics with different scales, at the larger scale where both fit it.

    A numeric that does not fit has a greater magnitude than any value of the other type, so its sign decides.
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


#: The type of an argument of any type, for `is_null`, `coalesce`, `greatest`, `least`, `count`.
ANY = SqlType("any")


def _common(args: Sequence[SqlType]) -> SqlType:
    """The common type of the branches; for numerics, with the largest scale."""
    first = args[0]
    if first.kind == "numeric":
        return common_numeric(args)
    return first


def _extreme(function: str) -> Spelling:
    """GREATEST or LEAST of the engines, which skip NULLs and have NaN as the greatest."""

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
