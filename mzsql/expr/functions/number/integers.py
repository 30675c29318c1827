"""Functions of whole numbers: hexadecimal digits, the greatest common divisor, the least common multiple, factorials.

Promise: PostgreSQL's, of integers; a result that its type has no room for is an error. A factorial has up to 38 digits, as a numeric has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, duckdb_only, failed, of, scalar, when
from mzsql.expr.functions.table import Engine, ScalarFunc, Spelling, Sql
from mzsql.repr.types import BIGINT, TEXT, SqlType

_MAX_FACTORIAL = 33


def _hex(bits: int) -> Spelling:
    """The digits of a number's bits, without zeros before them."""

    def value(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        ast = s.big(args[0].ast)
        if bits < 64:
            ast = s.case((s.lt(ast, s.num(0)), s.add(ast, s.num(2**bits))), otherwise=ast)
        return s.call("LOWER", s.call("HEX", ast))

    return value


def _of_two(function: str) -> Spelling:
    """A function of DuckDB's, in 128 bits, where every result of two bigints has room."""

    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        if engine is Engine.SPARK:
            raise duckdb_only(function.lower())
        one, other = (s.hugeint(arg.ast) for arg in args)
        return s.try_cast(s.call("ABS", s.call(function, one, other)), typ, engine)

    return value


def _factorial(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    ast = args[0].ast
    known = s.array(
        *(s.cast(s.num(math.factorial(n)), typ, engine) for n in range(_MAX_FACTORIAL + 1))
    )
    place = s.case(
        (s.between(ast, s.num(0), s.num(_MAX_FACTORIAL)), s.integer(s.add(ast, s.num(1))))
    )
    return s.call("ELEMENT_AT" if engine is Engine.SPARK else "LIST_EXTRACT", known, place)


def _functions() -> list[ScalarFunc]:
    found = []
    for kind, bits in (("integer", 32), ("bigint", 64)):
        typ = of(kind)
        found.append(scalar(f"to_hex_{kind}", "to_hex", (typ,), TEXT, _hex(bits)))
        for name in ("gcd", "lcm"):
            value = _of_two(name.upper())
            rule = failed(value, f"{kind} out of range", typ)
            found.append(scalar(f"{name}_{kind}", name, (typ, typ), typ, value, rule))
    found.append(
        scalar(
            "factorial",
            "factorial",
            (BIGINT,),
            SqlType("numeric", scale=0),
            _factorial,
            when(lambda n: s.lt(n, s.num(0)), "factorial of a negative number is undefined"),
            when(lambda n: s.gt(n, s.num(_MAX_FACTORIAL)), "value overflows numeric format"),
        )
    )
    return found


FUNCTIONS: tuple[ScalarFunc, ...] = tuple(_functions())
