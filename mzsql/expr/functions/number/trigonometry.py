"""Trigonometry, of doubles; domain errors are Materialize's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.number.arithmetic import is_infinite
from mzsql.expr.functions.number.mathematics import ANYTHING, domain, unary
from mzsql.expr.functions.number.rounding import declared, engine_call
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Sql
from mzsql.repr.types import DOUBLE, SqlType


def _trigonometry() -> list[ScalarFunc]:
    nan = s.cast_to(s.text("NaN"), s.typed(exp.DType.DOUBLE))
    infinity = s.cast_to(s.text("Infinity"), s.typed(exp.DType.DOUBLE))

    def finite(ast: Ast) -> Ast:
        return s.neq(s.call("ABS", ast), infinity)

    def unit(ast: Ast) -> Ast:
        return s.or_(s.between(ast, s.num(-1), s.num(1)), s.eq(ast, nan))

    def infinite(name: str) -> ErrorRule:
        message = f"function {name} is only defined for finite arguments"
        return ErrorRule(lambda e, args, _t: is_infinite(args[0].ast, e), message)

    functions = []
    for name in ("sin", "cos", "tan"):
        functions += unary(name, name.upper(), finite, infinite(name), also_numeric=False)
    for name in ("asin", "acos"):
        message = f"function {name} is defined for numbers between -1 and 1 inclusive"
        rule = domain(lambda ast: s.not_(unit(ast)), message)
        functions += unary(name, name.upper(), unit, rule, also_numeric=False)
    functions += unary("atan", "ATAN", ANYTHING, also_numeric=False)
    for name in ("sinh", "cosh", "tanh", "asinh"):
        functions += unary(name, name.upper(), ANYTHING, also_numeric=False)

    def from_one(ast: Ast) -> Ast:
        return s.or_(s.gte(ast, s.num(1)), s.eq(ast, nan))

    message = "function acosh is defined for numbers greater than or equal to 1"
    rule = domain(lambda ast: s.not_(from_one(ast)), message)
    functions += unary("acosh", "ACOSH", from_one, rule, also_numeric=False)
    functions += _atanh(unit)
    cot = "function cot is only defined for finite arguments"
    functions += unary(
        "cot",
        "COT",
        finite,
        ErrorRule(lambda e, args, _t: is_infinite(args[0].ast, e), cot),
        also_numeric=False,
    )
    functions += unary("degrees", "DEGREES", ANYTHING, also_numeric=False, overflow=True)
    functions += unary("radians", "RADIANS", ANYTHING, also_numeric=False)
    functions.append(
        declared("atan2_double", "atan2", (DOUBLE, DOUBLE), DOUBLE, engine_call("ATAN2"))
    )
    pi = s.cast_to(s.text("3.141592653589793"), s.typed(exp.DType.DOUBLE))
    functions.append(declared("pi", "pi", (), DOUBLE, lambda _e, _a, _t: pi.copy()))
    return functions


def _atanh(unit: Callable[[Ast], Ast]) -> list[ScalarFunc]:
    """Infinite at both ends of the interval, which DuckDB refuses."""
    infinity = s.cast_to(s.text("Infinity"), s.typed(exp.DType.DOUBLE))

    def value(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        ast = s.double(args[0].ast)
        ends = [
            (s.eq(ast, s.num(sign)), s.mul(infinity, s.double(s.num(sign)))) for sign in (1, -1)
        ]
        inside = s.and_(unit(ast), s.neq(s.call("ABS", ast), s.num(1)))
        return s.case(*ends, otherwise=s.call("ATANH", s.case((inside, ast))))

    message = "function atanh is defined for numbers between -1 and 1 inclusive"
    rule = domain(lambda ast: s.not_(unit(ast)), message)
    return [declared("atanh_double", "atanh", (DOUBLE,), DOUBLE, value, rule)]


FUNCTIONS: tuple[ScalarFunc, ...] = tuple(
    replace(func, rounded=func.name == "pi") for func in _trigonometry()
)
