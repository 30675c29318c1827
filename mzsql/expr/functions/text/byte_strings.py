"""What PostgreSQL does with bytea as with texts: trim, position, overlay, LIKE.

Promise: these mean what the same functions of texts mean, with a byte as the letter. Bytes are read as letters, one each: the bytes of
ASCII as their own characters, so that the signs of a LIKE pattern stay what they are; all others, and the zero byte that no text holds,
as characters from 256 on. Such texts live within one expression only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, duckdb_only
from mzsql.expr.functions.table import Engine, ErrorRule, ScalarFunc, Spelling, Sql
from mzsql.expr.functions.text import string_functions
from mzsql.repr.types import BYTEA, TEXT, SqlType

#: The keys of the functions of texts that hold for bytes too.
_SHARED = (
    *("btrim_characters", "ltrim_characters", "rtrim_characters"),
    *("position", "overlay", "overlay_for", "like"),
)
#: The letter of a byte that is no character of ASCII is so far above it.
_ABOVE = 256


def _letters(value: Ast, engine: Engine) -> Ast:
    """The text of a bytea's letters."""
    if engine is Engine.SPARK:
        raise duckdb_only("a bytea read as letters")
    code = s.integer(s.concat(s.text("0x"), s.variable("by0")))
    plain = s.between(s.variable("by1"), s.num(1), s.num(127))
    shifted = s.case((plain, s.variable("by1")), otherwise=s.add(s.variable("by1"), s.num(_ABOVE)))
    pairs = s.call("REGEXP_EXTRACT_ALL", s.call("HEX", value), s.text(".."))
    codes = s.mapped(pairs, "by0", code, engine)
    letters = s.mapped(codes, "by1", s.call("CHR", s.integer(shifted)), engine)
    return s.call("ARRAY_TO_STRING", letters, s.text(""))


def _bytes(letters: Ast, engine: Engine) -> Ast:
    """The bytea of a text of letters."""
    codes = s.mapped(
        s.call("STRING_SPLIT", letters, s.text("")),
        "by2",
        s.mod(s.call("UNICODE", s.variable("by2")), s.num(_ABOVE)),
        engine,
    )
    pairs = s.mapped(
        codes, "by3", s.call("PRINTF", s.text("%02X"), s.integer(s.variable("by3"))), engine
    )
    digits = s.call("ARRAY_TO_STRING", pairs, s.text(""))
    # An empty text splits into one empty part, which is no letter.
    none = s.eq(letters, s.text(""))
    return s.call("UNHEX", s.case((none, s.text("")), otherwise=digits))


def _read(args: Sequence[Sql], engine: Engine) -> list[Sql]:
    return [Sql(_letters(arg.ast, engine), TEXT) if arg.typ == BYTEA else arg for arg in args]


def _of_letters(spelling: Spelling) -> Spelling:
    def value(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return spelling(engine, _read(args, engine), typ)

    return value


def _as_bytes(spelling: Spelling) -> Spelling:
    def value(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        return _bytes(spelling(engine, _read(args, engine), TEXT), engine)

    return value


def _rule(rule: ErrorRule) -> ErrorRule:
    message = rule.message if isinstance(rule.message, str) else _of_letters(rule.message)
    return ErrorRule(_of_letters(rule.condition), message, rule.possible)


def _for_bytes(func: ScalarFunc) -> ScalarFunc:
    """The overload for bytea of a function of texts."""
    of_bytes = func.result == TEXT
    return replace(
        func,
        key=f"{func.key}_bytea",
        args=tuple(BYTEA if arg == TEXT else arg for arg in func.args),
        result=BYTEA if of_bytes else func.result,
        value=_as_bytes(func.value) if of_bytes else _of_letters(func.value),
        errors=tuple(map(_rule, func.errors)),
    )


FUNCTIONS: tuple[ScalarFunc, ...] = tuple(
    _for_bytes(func) for func in string_functions.FUNCTIONS if func.key in _SHARED
)
