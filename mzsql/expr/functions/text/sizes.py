"""The limit on the size of texts that functions make.

Promise: a result of more than `MAX_RESULT` bytes is an error, as in Materialize, in views and queries alike; where it
could exceed the arguments by much, it is not even built. Sizes are bounded from the arguments' bytes, and counted where
the bound does not decide. Trade-off: for `regexp_replace` and `array_to_string`, what is written repeatedly is checked
only where it is no constant, or a long one; with a short one they cannot fail, so that views of them need no errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, constant_text
from mzsql.expr.functions.table import Engine, ErrorRule, Spelling, Sql
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import SqlType

#: The maximum size of a function's result, in bytes.
MAX_RESULT = 100 * 1024 * 1024
TOO_LARGE = "requested length too large"
#: A constant up to this size may be written at every place: it multiplies the text's bytes at most by this.
_SHORT = 16


def octets(ast: Ast, engine: Engine) -> Ast:
    """The size of a text in bytes, as bigint."""
    return s.big(s.call("OCTET_LENGTH" if engine is Engine.SPARK else "STRLEN", ast))


def too_large(size: Ast) -> Ast:
    """Whether a size exceeds the limit."""
    return s.gt(size, s.num(MAX_RESULT))


def within(size: Spelling) -> ErrorRule:
    """The error for a result of ``size`` bytes."""

    def condition(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return too_large(size(engine, args, typ))

    return ErrorRule(condition, TOO_LARGE)


def total(parts: Sequence[Ast], engine: Engine) -> Ast:
    """The bytes of several texts together, without NULLs."""
    size = s.big(s.num(0))
    for part in parts:
        size = s.add(size, s.coalesce(octets(part, engine), s.big(s.num(0))))
    return size


def is_short(arg: Sql) -> bool:
    """Whether an argument is a constant, possibly NULL, so short that its repetitions need no check."""
    try:
        text = constant_text(arg, "a text")
    except Unsupported:
        return False
    return text is None or len(text.encode()) <= _SHORT
