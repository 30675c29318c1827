"""Functions of numbers computed by libraries: roots, powers, logarithms; and the remainder as a function.

Promise: roots, powers and logarithms of numerics are computed as doubles, with about 15 digits: the trade-off for
having them in both engines (for constants they have all digits: `mzsql.expr.numeric_folding`). Domain errors are Materialize's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import FLOATS, INTEGERS, Ast, failed
from mzsql.expr.functions.number import arithmetic, rounding
from mzsql.expr.functions.number import numeric as numerics
from mzsql.expr.functions.number.arithmetic import is_infinite, overflows
from mzsql.expr.functions.number.casts import decimal_to_double
from mzsql.expr.functions.number.numeric import OUT_OF_RANGE
from mzsql.expr.functions.number.rounding import declared
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.types import DOUBLE, NUMERIC, SqlType


def domain(condition: Callable[[Ast], Ast], message: str) -> ErrorRule:
    """An error rule with a condition on the first argument."""
    return ErrorRule(lambda _e, args, _t: condition(args[0].ast), message)


def _guarded(function: str, valid: Callable[[Ast], Ast]) -> Spelling:
    def value(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        ast = s.double(args[0].ast)
        return s.call(function, s.case((valid(ast), ast)))

    return value


def _on_doubles(value: Spelling) -> Spelling:
    """A numeric function computed as double."""

    def spelling(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        doubles = [
            Sql(decimal_to_double(arg.ast, engine), DOUBLE) if arg.typ.kind == "numeric" else arg
            for arg in args
        ]
        found = value(engine, doubles, DOUBLE)
        return s.try_cast_to(_plain_text(found, engine), s.decimal_type(38, typ.effective_scale))

    return spelling


def _plain_text(ast: Ast, engine: Engine) -> Ast:
    """A double with 15 significant digits, on which the engines' libraries agree."""
    fits = s.case((s.lt(s.call("ABS", ast), s.num("1e37")), ast))
    if engine is Engine.SPARK:
        return s.call("FORMAT_STRING", s.text("%.14e"), fits)
    return s.call("FORMAT", s.text("{:.14e}"), fits)


ANYTHING = s.is_not_null


def _not_negative(ast: Ast) -> Ast:
    return s.gte(ast, s.num(0))


def _positive(ast: Ast) -> Ast:
    return s.gt(ast, s.num(0))


def _zero(ast: Ast) -> Ast:
    return s.eq(ast, s.num(0))


def _negative(ast: Ast) -> Ast:
    return s.lt(ast, s.num(0))


def _numeric_default(_args: Sequence[SqlType]) -> SqlType:
    return NUMERIC


def unary(
    name: str,
    function: str,
    valid: Callable[[Ast], Ast],
    *errors: ErrorRule,
    also_numeric: bool = True,
    overflow: bool = False,
) -> list[ScalarFunc]:
    """A function of a double, and of a numeric computed as one.

    Args:
        name: its SQL name.
        function: the engines' name.
        valid: the condition on the argument under which it is defined.
        errors: the ways it fails.
        also_numeric: whether numerics have it too.
        overflow: whether a finite argument may overflow.
    """
    value = _guarded(function, valid)
    rules = list(errors)
    if overflow:

        def beyond(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
            return s.and_(
                is_infinite(value(engine, args, typ), engine),
                s.not_(is_infinite(args[0].ast, engine)),
            )

        def vanished(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
            return s.and_(
                s.eq(value(engine, args, typ), s.num(0)),
                s.neq(args[0].ast, s.num(0)),
                s.not_(is_infinite(args[0].ast, engine)),
            )

        rules.append(ErrorRule(beyond, "value out of range: overflow"))
        rules.append(ErrorRule(vanished, "value out of range: underflow"))
    functions = [declared(f"{name}_double", name, (DOUBLE,), DOUBLE, value, *rules)]
    if also_numeric:
        by_double = _on_doubles(value)
        rule = failed(by_double, OUT_OF_RANGE)
        functions.append(
            declared(
                f"{name}_numeric", name, (NUMERIC,), _numeric_default, by_double, *errors, rule
            )
        )
    return functions


def _logarithms() -> list[ScalarFunc]:
    functions = []
    for name, function in (("ln", "LN"), ("log10", "LOG10"), ("log", "LOG10")):
        shown = "ln" if name == "ln" else "log10"
        zero = domain(_zero, f"function {shown} is not defined for zero")
        negative = domain(_negative, f"function {shown} is not defined for negative numbers")
        functions += unary(name, function, _positive, zero, negative)
    return functions


def _cube_root(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
    """Of the cube of a whole number that number, which not every C library finds."""
    root = s.call("CBRT", args[0].ast)
    whole = s.call("ROUND", root)
    cube = s.mul(s.mul(whole, whole), whole)
    return s.case((s.eq(cube, args[0].ast), whole), otherwise=root)


def _roots() -> list[ScalarFunc]:
    negative = domain(_negative, "cannot take square root of a negative number")
    functions = unary("sqrt", "SQRT", _not_negative, negative)
    functions.append(declared("cbrt_double", "cbrt", (DOUBLE,), DOUBLE, _cube_root))
    functions += unary("exp", "EXP", ANYTHING, overflow=True)
    return functions


def _power() -> list[ScalarFunc]:
    def zero_to_negative(args: Sequence[Sql]) -> Ast:
        return s.and_(s.eq(args[0].ast, s.num(0)), s.lt(args[1].ast, s.num(0)))

    def complex_result(engine: Engine, args: Sequence[Sql]) -> Ast:
        exponent = s.double(args[1].ast)
        whole = (
            s.call("RINT", exponent)
            if engine is Engine.SPARK
            else s.call("ROUND_EVEN", exponent, s.num(0))
        )
        infinite = is_infinite(exponent, engine)
        return s.and_(s.lt(args[0].ast, s.num(0)), s.neq(whole, exponent), s.not_(infinite))

    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        invalid = s.or_(zero_to_negative(args), complex_result(engine, args))
        base = s.case((s.not_(invalid), s.double(args[0].ast)))
        # As in PostgreSQL, 1 to any power is 1, and any number to the power 0, even with NaN, for which Java's POW
        # returns NaN.
        one = s.or_(s.eq(args[0].ast, s.num(1)), s.eq(args[1].ast, s.num(0)))
        known = s.and_(one, s.is_not_null(args[0].ast), s.is_not_null(args[1].ast))
        powered = s.call("POWER", base, s.double(args[1].ast))
        return s.case((known, s.double(s.num(1))), otherwise=powered)

    def underflows(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        finite = [s.not_(is_infinite(arg.ast, engine)) for arg in args]
        return s.and_(
            s.eq(value(engine, args, typ), s.num(0)), s.neq(args[0].ast, s.num(0)), *finite
        )

    rules = (
        ErrorRule(
            lambda _e, args, _t: zero_to_negative(args),
            "zero raised to a negative power is undefined",
        ),
        ErrorRule(
            lambda e, args, _t: complex_result(e, args),
            "function pow cannot return complex numbers",
        ),
    )
    floats = (
        *rules,
        ErrorRule(overflows(value), "value out of range: overflow"),
        ErrorRule(underflows, "value out of range: underflow"),
    )
    by_double = _on_doubles(value)
    functions = []
    for name in ("power", "pow"):
        functions.append(declared(f"{name}_double", name, (DOUBLE, DOUBLE), DOUBLE, value, *floats))
        functions.append(
            declared(
                f"{name}_numeric",
                name,
                (NUMERIC, NUMERIC),
                _numeric_default,
                by_double,
                *rules,
                failed(by_double, OUT_OF_RANGE),
            )
        )
    return functions


def _log_of_base() -> list[ScalarFunc]:
    """``log(base, x)`` of numerics, computed as doubles."""

    def quotient(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        logs = [s.call("LN", s.case((_positive(arg.ast), s.double(arg.ast)))) for arg in args]
        return s.div(logs[1], s.nullif(logs[0], s.double(s.num(0))))

    value = _on_doubles(quotient)
    rules = []
    for place in (0, 1):
        for test, what in ((_zero, "zero"), (_negative, "negative numbers")):

            def holds(
                _engine: Engine,
                args: Sequence[Sql],
                _typ: SqlType,
                place: int = place,
                test: Callable[[Ast], Ast] = test,
            ) -> Ast:
                return test(args[place].ast)

            rules.append(ErrorRule(holds, f"function log is not defined for {what}"))
    one = ErrorRule(lambda _e, args, _t: s.eq(args[0].ast, s.num(1)), "division by zero")
    args = (NUMERIC, NUMERIC)
    return [
        declared(
            "log_base_numeric",
            "log",
            args,
            _numeric_default,
            value,
            *rules,
            one,
            failed(value, OUT_OF_RANGE),
        )
    ]


def _named_modulo() -> list[ScalarFunc]:
    """``mod(a, b)``: the operator as a function."""
    rows = {f.key: f for f in (*arithmetic.FUNCTIONS, *numerics.FUNCTIONS)}
    functions = []
    for kind in (*INTEGERS, *FLOATS, "numeric"):
        row = rows[f"mod_{kind}"]
        functions.append(
            ScalarFunc(
                key=f"mod_function_{kind}",
                name="mod",
                args=row.args,
                result=row.result,
                value=row.value,
                explain=row.explain,
                errors=row.errors,
            )
        )
    return functions


#: Those library functions that IEEE 754, or a single multiplication, determines exactly.
_ROUNDED = frozenset({"sqrt", "pi"})


def _from_libraries() -> list[ScalarFunc]:
    return [*_roots(), *_logarithms(), *_log_of_base(), *_power()]


FUNCTIONS: tuple[ScalarFunc, ...] = (
    *rounding.FUNCTIONS,
    *(replace(func, rounded=func.name in _ROUNDED) for func in _from_libraries()),
    *_named_modulo(),
)
