"""Shifts of integers, and the bits and bytes of a bytea.

Promise: a shift counts modulo the width of the type, as in PostgreSQL (a smallint is shifted as an integer, then
truncated); bytes count from 0, and an index out of range is an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import SIGNED, UNSIGNED, Ast, engines, of
from mzsql.expr.functions.number.arithmetic import divide
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.repr.types import BIGINT, BYTEA, INTEGER, UINT4, SqlType

_WIDTH = {"smallint": 32, "integer": 32, "bigint": 64}


def _wrapped(ast: Ast, bits: int) -> Ast:
    """The low bits of a wide integer, as a signed number."""
    size = s.wide(s.num(2**bits))
    low = s.mod(s.add(s.mod(ast, size), size), size)
    return s.case((s.gte(low, s.num(2 ** (bits - 1))), s.sub(low, size)), otherwise=low)


def _shift(left: bool, kind: str) -> Spelling:
    width = _WIDTH[kind]

    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        ast, count = (arg.ast for arg in args)
        size = s.num(width)
        by = s.integer(s.mod(s.add(s.mod(count, size), size), size))
        if engine is Engine.SPARK:
            carrier = s.big(ast) if width == 64 or not left else s.integer(ast)
            name = "SHIFTLEFT" if left else "SHIFTRIGHT"
            shifted = s.call(name, carrier, by)
        elif left:
            # DuckDB refuses shifts that lose bits, so multiply by a power of two in 128 bits, 64-bit integers in two
            # halves.
            power = s.call(
                "LIST_EXTRACT", s.array(*(s.num(2**n) for n in range(width))), s.add(by, s.num(1))
            )
            return s.cast(_product(ast, power, width, kind), typ, engine)
        else:
            power = s.call(
                "LIST_EXTRACT", s.array(*(s.num(2**n) for n in range(width))), s.add(by, s.num(1))
            )
            wide = s.hugeint(ast)
            rest = s.mod(s.add(s.mod(wide, s.hugeint(power)), s.hugeint(power)), s.hugeint(power))
            shifted = s.int_div(s.sub(wide, rest), s.hugeint(power))
            return s.cast(shifted, typ, engine)
        if kind == "smallint":
            return s.cast(_wrapped(s.wide(shifted), 16), typ, engine)
        return s.cast(shifted, typ, engine)

    return value


def _product(ast: Ast, power: Ast, width: int, kind: str) -> Ast:
    """DuckDB: the low bits of a product, in 128-bit integers."""
    bits = 16 if kind == "smallint" else width
    size = s.hugeint(s.num(2**bits))
    # Only the operand's low bits matter; with them the product stays below 2^127.
    kept = s.mod(s.add(s.mod(s.hugeint(ast), size), size), size)
    if bits == 64:
        half = s.hugeint(s.num(2**32))
        high, low = s.int_div(kept, half), s.mod(kept, half)
        # The upper half counts in units of 2^32, and its bits above 2^32 are lost; both products stay below 2^96.
        upper = s.mul(s.mod(s.mul(high, s.hugeint(power)), half), half)
        total = s.mod(s.add(upper, s.mul(low, s.hugeint(power))), size)
    else:
        total = s.mod(s.mul(kept, s.hugeint(power)), size)
    return s.case(
        (s.gte(total, s.hugeint(s.num(2 ** (bits - 1)))), s.sub(total, size)), otherwise=total
    )


_UNSIGNED_BITS = {"uint2": 16, "uint4": 32, "uint8": 64}


def _unsigned_shift(left: bool, kind: str) -> Spelling:
    """A shift as multiplication or division by a power of two; bits lost on the left are removed first, so that nothing
    overflows.
    """
    bits = _UNSIGNED_BITS[kind]
    width = max(bits, 32)

    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        ast, count = (arg.ast for arg in args)
        by = s.integer(s.mod(count, s.num(width)))
        find = "ELEMENT_AT" if engine is Engine.SPARK else "LIST_EXTRACT"
        powers = s.array(*(s.wide(s.num(2**n)) for n in range(width)))
        power = s.call(find, powers, s.add(by, s.num(1)))
        if not left:
            return divide(
                ast, s.cast(power, typ, engine) if bits == 64 else s.big(power), kind, engine
            )
        kept = s.array(*(s.wide(s.num(2 ** max(0, bits - n))) for n in range(width)))
        room = s.call(find, kept, s.add(by, s.num(1)))
        shifted = s.mul(s.mod(s.wide(ast), room), power)
        return s.cast(s.case((s.lt(by, s.num(bits)), shifted), otherwise=s.num(0)), typ, engine)

    return value


def _shifts() -> list[ScalarFunc]:
    spelled = [
        *((kind, INTEGER, _shift) for kind in SIGNED),
        *((kind, UINT4, _unsigned_shift) for kind in UNSIGNED),
    ]
    return [
        ScalarFunc(
            key=f"{key}_{kind}",
            name=symbol,
            args=(of(kind), count),
            result=of(kind),
            value=shift(key == "bit_shift_left", kind),
            explain=f"({{0}} {symbol} {{1}})",
        )
        for key, symbol in (("bit_shift_left", "<<"), ("bit_shift_right", ">>"))
        for kind, count, shift in spelled
    ]


def _hex(ast: Ast) -> Ast:
    return s.call("HEX", ast)


def _size(ast: Ast) -> Ast:
    return s.call("OCTET_LENGTH", ast)


def _outside(limit: int) -> ErrorRule:
    def condition(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        ast, index = (arg.ast for arg in args)
        size = s.mul(s.big(_size(ast)), s.num(limit))
        return s.or_(s.lt(index, s.num(0)), s.gte(index, size))

    def message(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        ast, index = (arg.ast for arg in args)
        last = s.sub(s.mul(s.big(_size(ast)), s.num(limit)), s.num(1))
        return s.concat(
            s.text("index "), s.string(index), s.text(" out of valid range, 0.."), s.string(last)
        )

    return ErrorRule(condition, message)


def _nibble(ast: Ast, position: Ast) -> Ast:
    """The value of the hexadecimal digit at a position, from 1."""
    return s.sub(
        s.call(
            "INSTR", s.text("0123456789ABCDEF"), s.call("SUBSTRING", _hex(ast), position, s.num(1))
        ),
        s.num(1),
    )


def _byte(ast: Ast, index: Ast) -> Ast:
    inside = s.and_(s.gte(index, s.num(0)), s.lt(index, _size(ast)))
    safe = s.integer(s.case((inside, index), otherwise=s.num(0)))
    first = s.integer(s.add(s.mul(safe, s.num(2)), s.num(1)))
    second = s.integer(s.add(s.mul(safe, s.num(2)), s.num(2)))
    found = s.add(s.mul(_nibble(ast, first), s.num(16)), _nibble(ast, second))
    return s.integer(s.case((inside, found)))


def _get_byte(ast: Ast, index: Ast) -> Ast:
    return _byte(ast, index)


def _get_bit(ast: Ast, index: Ast) -> Ast:
    byte = _byte(ast, s.integer(s.int_div(s.big(index), s.big(s.num(8)))))
    bit = s.mod(index, s.num(8))
    divisors = [(s.eq(bit, s.num(n)), s.int_div(s.big(byte), s.big(s.num(2**n)))) for n in range(8)]
    return s.integer(s.mod(s.case(*divisors), s.num(2)))


def _bit_count(ast: Ast) -> Ast:
    """The number of set bits, from the counts of each hexadecimal digit in the bytes' text."""
    digits = _hex(ast)
    total: Ast = s.num(0)
    for count in (1, 2, 3, 4):
        chars = "".join(f"{n:X}" for n in range(16) if n.bit_count() == count)
        left = s.call("TRANSLATE", digits, s.text(chars), s.text(""))
        found = s.sub(s.big(s.call("LENGTH", digits)), s.big(s.call("LENGTH", left)))
        total = s.add(total, s.mul(found, s.num(count)))
    return s.big(total)


def _both(function: object) -> Spelling:
    assert callable(function)
    return engines(spark=function, duckdb=function)


FUNCTIONS: tuple[ScalarFunc, ...] = (
    *_shifts(),
    ScalarFunc(
        key="get_byte",
        name="get_byte",
        args=(BYTEA, INTEGER),
        result=INTEGER,
        value=_both(_get_byte),
        errors=(_outside(1),),
    ),
    ScalarFunc(
        key="get_bit",
        name="get_bit",
        args=(BYTEA, INTEGER),
        result=INTEGER,
        value=_both(_get_bit),
        errors=(_outside(8),),
    ),
    ScalarFunc(
        key="bit_count",
        name="bit_count",
        args=(BYTEA,),
        result=BIGINT,
        value=_both(_bit_count),
    ),
)
