"""Arithmetic of integers and floats.

Promise: an integer operation uses the operands' type and the engines' operations that yield NULL on overflow; an
overflow is an error that shows the operation in Materialize's words (``"2147483647 + 1" integer out of range``).
Unsigned integers are computed in a wider signed type and checked against their range. Floats follow IEEE 754, except
for what PostgreSQL makes an error: division by zero, and a finite operation with an infinite or vanishing result.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import (
    BOUNDS,
    FLOATS,
    INTEGERS,
    SIGNED,
    UNSIGNED,
    Ast,
    failed,
    of,
)
from mzsql.expr.functions.number.numeric import DIVISION_BY_ZERO
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.types import SqlType, type_name

_NAMES = {"add": "+", "sub": "-", "mul": "*", "div": "/", "mod": "%"}
_TRY = {"add": "add", "sub": "subtract", "mul": "multiply"}


def in_range(ast: Ast, kind: str, engine: Engine) -> Ast:
    """A wide integer as ``kind``; NULL out of range."""
    low, high = BOUNDS[kind]
    if kind in SIGNED:
        return s.try_cast(ast, of(kind), engine)
    return s.cast(s.case((s.between(s.wide(ast), s.num(low), s.num(high)), ast)), of(kind), engine)


def out_of_range(symbol: str, lead: str = "") -> Spelling:
    """The message ``"a symbol b" kind out of range``, or ``"a" kind out of range`` for one argument, after ``lead``."""

    def message(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        shown = [s.string(arg.ast) for arg in args]
        name = type_name(args[0].typ)
        body = (
            [s.text(f'{lead}"'), shown[0]]
            if len(shown) == 1
            else [s.text(f'{lead}"'), shown[0], s.text(f" {symbol} "), shown[1]]
        )
        return s.concat(*body, s.text(f'" {name} out of range'))

    return message


def _integer_value(op: str, kind: str) -> Spelling:
    def spelling(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        a, b = (arg.ast for arg in args)
        if op == "div":
            return divide(a, b, kind, engine)
        if op == "mod":
            safe = s.nullif(b, s.num(0))
            # The smallest integer modulo -1 overflows in the engine; modulo 1 is the same and does not.
            return s.cast(s.mod(a, s.call("ABS", s.wide(safe))), of(kind), engine)
        if kind in SIGNED:
            return s.try_cast(s.try_op(_TRY[op], a, b, engine), of(kind), engine)
        return in_range(s.try_op(_TRY[op], s.wide(a), s.wide(b), engine), kind, engine)

    return spelling


def divide(a: Ast, b: Ast, kind: str, engine: Engine) -> Ast:
    """The truncated quotient of two integers of a kind; NULL where there is none."""
    safe = s.nullif(b, s.num(0))
    if kind == "uint8":
        # In decimal(20, 0) a quotient could round up to an integer; without the remainder the division is exact.
        exact = s.sub(s.wide(a), s.mod(s.wide(a), s.wide(safe)))
        quotient = (
            s.div(exact, s.wide(safe))
            if engine is Engine.SPARK
            else s.int_div(
                s.cast_to(a, s.typed(exp.DType.INT128)), s.cast_to(safe, s.typed(exp.DType.INT128))
            )
        )
        return s.try_cast(s.wide(quotient), of(kind), engine)
    if engine is Engine.SPARK and kind == "bigint":
        flipped = s.call("TRY_SUBTRACT", s.big(s.num(0)), a)
        return s.case((s.eq(b, s.num(-1)), flipped), otherwise=s.int_div(a, safe))
    return s.try_cast(
        s.int_div(s.big(a), s.big(safe))
        if engine is Engine.SPARK
        else s.call("TRY", s.int_div(a, safe)),
        of(kind),
        engine,
    )


def _integer(op: str, kind: str) -> ScalarFunc:
    value = _integer_value(op, kind)
    errors: tuple[ErrorRule, ...] = ()
    if op in ("div", "mod"):
        errors += (DIVISION_BY_ZERO,)
    if op != "mod":
        # The words before the colon are Materialize's, those after it PostgreSQL's.
        lead = "" if op == "div" else "numeric field overflow: "
        errors += (failed(value, out_of_range(_NAMES[op], lead)),)
    return ScalarFunc(
        key=f"{op}_{kind}",
        name=_NAMES[op],
        args=(of(kind), of(kind)),
        result=of(kind),
        value=value,
        explain=f"({{0}} {_NAMES[op]} {{1}})",
        errors=errors,
        monotone=op in ("add", "sub"),
    )


def _negate(kind: str) -> ScalarFunc:
    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        zero = s.cast(s.num(0), of(kind), engine)
        return s.try_cast(s.try_op("subtract", zero, args[0].ast, engine), typ, engine)

    return ScalarFunc(
        key=f"neg_{kind}",
        name="-",
        args=(of(kind),),
        result=of(kind),
        value=value,
        explain="-({0})",
        errors=(failed(value, out_of_range("-")),),
        monotone=True,
    )


def is_infinite(ast: Ast, _engine: Engine | None = None) -> Ast:
    """Whether a float is ±infinity."""
    infinity = s.cast_to(s.text("Infinity"), s.typed(exp.DType.DOUBLE))
    return s.eq(s.call("ABS", s.double(ast)), infinity)


def overflows(value: Spelling) -> Spelling:
    """That a float function of finite arguments is infinite."""

    def condition(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        finite = [s.not_(is_infinite(arg.ast, engine)) for arg in args]
        return s.and_(is_infinite(value(engine, args, typ), engine), *finite)

    return condition


def _float_value(op: str, kind: str) -> Spelling:
    def spelling(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        a, b = (arg.ast for arg in args)
        zero = s.cast(s.num(0), of(kind), engine)
        match op:
            case "add":
                return s.add(a, b)
            case "sub":
                return s.sub(a, b)
            case "mul":
                return s.mul(a, b)
            case "div":
                return s.cast(s.div(a, s.nullif(b, zero)), of(kind), engine)
            case _:
                return s.mod(a, s.nullif(b, zero))

    return spelling


def _float(op: str, kind: str) -> ScalarFunc:
    value = _float_value(op, kind)

    def underflows(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        a, b = (arg.ast for arg in args)
        nonzero = [s.neq(a, s.num(0))]
        nonzero.append(s.neq(b, s.num(0)) if op == "mul" else s.not_(is_infinite(b, engine)))
        return s.and_(s.eq(value(engine, args, typ), s.num(0)), *nonzero)

    errors: tuple[ErrorRule, ...] = (DIVISION_BY_ZERO,) if op in ("div", "mod") else ()
    if op != "mod":
        errors += (ErrorRule(overflows(value), "value out of range: overflow"),)
    if op in ("mul", "div"):
        errors += (ErrorRule(underflows, "value out of range: underflow"),)
    return ScalarFunc(
        key=f"{op}_{kind}",
        name=_NAMES[op],
        args=(of(kind), of(kind)),
        result=of(kind),
        value=value,
        explain=f"({{0}} {_NAMES[op]} {{1}})",
        errors=errors,
        monotone=op in ("add", "sub"),
    )


def _negate_float(kind: str) -> ScalarFunc:
    return ScalarFunc(
        key=f"neg_{kind}",
        name="-",
        args=(of(kind),),
        result=of(kind),
        value=lambda _engine, args, _typ: exp.Paren(this=exp.Neg(this=args[0].ast.copy())),
        explain="-({0})",
        monotone=True,
    )


def _signed_bits(ast: Ast) -> Ast:
    """The bigint with the bits of a uint8."""
    wide, size = s.wide(ast), s.num(2**64)
    return s.big(s.case((s.gte(wide, s.num(2**63)), s.sub(wide, size)), otherwise=wide))


def _unsigned_bits(ast: Ast) -> Ast:
    """The uint8 with the bits of a bigint."""
    wide = s.wide(ast)
    return s.case((s.lt(wide, s.num(0)), s.add(wide, s.num(2**64))), otherwise=wide)


def _bitwise(op: str, kind: str) -> ScalarFunc:
    symbol = {"bit_and": "&", "bit_or": "|", "bit_xor": "#", "bit_not": "~"}[op]

    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        asts = [arg.ast.copy() for arg in args]
        if op == "bit_not" and kind in UNSIGNED:
            return s.cast(s.sub(s.wide(s.num(BOUNDS[kind][1])), s.wide(asts[0])), typ, engine)
        if op == "bit_not":
            return s.cast(exp.Paren(this=exp.BitwiseNot(this=asts[0])), typ, engine)
        if kind == "uint8":
            asts = [_signed_bits(ast) for ast in asts]
        if op == "bit_xor" and engine is Engine.DUCKDB:
            both = s.call("XOR", *asts)
        else:
            nodes = {
                "bit_and": exp.BitwiseAnd,
                "bit_or": exp.BitwiseOr,
                "bit_xor": exp.BitwiseXor,
            }
            both = exp.Paren(this=nodes[op](this=asts[0], expression=asts[1]))
        return s.cast(_unsigned_bits(both) if kind == "uint8" else both, typ, engine)

    unary = op == "bit_not"
    return ScalarFunc(
        key=f"{op}_{kind}",
        name=symbol,
        args=(of(kind),) if unary else (of(kind), of(kind)),
        result=of(kind),
        value=value,
        explain="~({0})" if unary else f"({{0}} {symbol} {{1}})",
    )


#: By float kind, the key of the function that turns -0.0 into 0.0 in keys. Not callable in SQL.
UNSIGNED_ZERO = {kind: f"unsigned_zero_{kind}" for kind in FLOATS}


def _unsigned_zeros() -> list[ScalarFunc]:
    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        zero = s.cast(s.num(0), typ, engine)
        return s.case((s.eq(args[0].ast, zero), zero), otherwise=args[0].ast)

    return [
        ScalarFunc(
            key=key,
            name="unsigned zero",
            args=(of(kind),),
            result=of(kind),
            value=value,
            explain="{0}",
            monotone=True,
        )
        for kind, key in UNSIGNED_ZERO.items()
    ]


FUNCTIONS: tuple[ScalarFunc, ...] = (
    *_unsigned_zeros(),
    *(
        _bitwise(op, kind)
        for op in ("bit_and", "bit_or", "bit_xor", "bit_not")
        for kind in INTEGERS
    ),
    *(_integer(op, kind) for op in _NAMES for kind in INTEGERS),
    *(_float(op, kind) for op in _NAMES for kind in FLOATS),
    *(_negate(kind) for kind in SIGNED),
    *(_negate_float(kind) for kind in FLOATS),
)
