"""Casts of the short text types: ``name``, of at most 63 bytes, and ``"char"``, of one byte.

Promise: as in PostgreSQL, a name is truncated to 63 bytes without splitting a character, and a ``"char"`` keeps its
first byte, shown in octal unless it is ASCII. A number casts to the ``"char"`` with that code, and back. Cast to text,
both are what they hold.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.cast_rows import ASSIGNMENT, EXPLICIT, Cast, cast_row
from mzsql.expr.functions.declare import Ast, when
from mzsql.expr.functions.table import Engine, Sql
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import INTEGER, NAME, PG_CHAR

_NAME_BYTES = 63
#: By the target's length, the keys of the casts from text.
KEYS = {NAME.length: "text_to_name", PG_CHAR.length: "text_to_char_code"}
#: The keys of the casts between integer and ``"char"``.
OF_CODE, TO_CODE = "integer_to_char_code", "char_code_to_integer"
_ASCII = 128
_INT = s.sql_type(INTEGER, Engine.DUCKDB)


def _only_duckdb(engine: Engine) -> None:
    if engine is not Engine.DUCKDB:
        raise Unsupported('casts to name and "char" are computed in process')


def _name(engine: Engine, args: Sequence[Sql], _typ: object) -> Ast:
    _only_duckdb(engine)
    text = args[0].ast
    size = s.variable("nm0")
    fits = s.lte(
        s.call("STRLEN", s.call("LEFT", text, size)),
        s.num(_NAME_BYTES),
    )
    sizes = s.call(
        "LIST_FILTER", s.call("RANGE", s.num(_NAME_BYTES + 1)), s.lambda_(("nm0",), fits)
    )
    cut = s.call("LEFT", text, s.call("LIST_MAX", sizes))
    return s.case((s.lte(s.call("STRLEN", text), s.num(_NAME_BYTES)), text), otherwise=cut)


def _octal(code: Ast) -> Ast:
    """A byte as a backslash and three octal digits."""
    digits = [s.mod(s.int_div(code, s.num(unit)), s.num(8)) for unit in (64, 8, 1)]
    return s.concat(s.text("\\"), *(s.string(digit) for digit in digits))


def _char(engine: Engine, args: Sequence[Sql], _typ: object) -> Ast:
    _only_duckdb(engine)
    first = s.call("LEFT", args[0].ast, s.num(1))
    byte = s.integer(s.concat(s.text("0x"), s.call("LEFT", s.call("HEX", first), s.num(2))))
    plain = s.lte(s.call("STRLEN", first), s.num(1))
    return s.case((plain, first), otherwise=_octal(byte))


def _of_code(engine: Engine, args: Sequence[Sql], _typ: object) -> Ast:
    _only_duckdb(engine)
    code = args[0].ast
    bits = s.case((s.lt(code, s.num(0)), s.add(code, s.num(2 * _ASCII))), otherwise=code)
    return s.case(
        (s.eq(code, s.num(0)), s.text("")),
        (s.between(code, s.num(1), s.num(_ASCII - 1)), s.call("CHR", code)),
        (s.between(code, s.num(-_ASCII), s.num(-1)), _octal(bits)),
    )


def _code(engine: Engine, args: Sequence[Sql], _typ: object) -> Ast:
    _only_duckdb(engine)
    text = args[0].ast
    octal = s.num(0)
    for place, unit in ((2, 64), (3, 8), (4, 1)):
        digit = s.try_cast_to(s.call("SUBSTR", text, s.num(place), s.num(1)), _INT)
        octal = s.add(octal, s.mul(digit, s.num(unit)))
    return s.integer(
        s.case(
            (s.eq(text, s.text("")), s.num(0)),
            (s.eq(s.call("LENGTH", text), s.num(4)), s.sub(octal, s.num(2 * _ASCII))),
            otherwise=s.call("ASCII", text),
        )
    )


CASTS: tuple[Cast, ...] = (
    cast_row("text", "text", ASSIGNMENT, _name, result=NAME, key="text_to_name"),
    cast_row("text", "text", ASSIGNMENT, _char, result=PG_CHAR, key="text_to_char_code"),
    cast_row(
        "integer",
        "text",
        EXPLICIT,
        _of_code,
        when(
            lambda code: s.not_(s.between(code, s.num(-_ASCII), s.num(_ASCII - 1))),
            '"char" out of range',
        ),
        result=PG_CHAR,
        key=OF_CODE,
    ),
    cast_row("text", "integer", EXPLICIT, _code, key=TO_CODE),
)
FUNCTIONS = tuple(cast.func for cast in CASTS)
