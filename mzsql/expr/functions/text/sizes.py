"""How large a text a function may make.

Promise: what would have more than `MAX_RESULT` bytes is an error, as in Materialize, in views and queries alike, and where that may be
much more than its arguments have it is not even made. Sizes are reckoned in bytes from those of the arguments; where that does not
settle it, they are counted. The trade-off: what `regexp_replace` and `array_to_string` write again and again is reckoned with where it is
no constant, or a long one; with a short one they cannot fail, so that views of them need no errors.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, constant_text
from mzsql.expr.functions.table import Engine, ErrorRule, Spelling, Sql
from mzsql.repr.errors import Unsupported
from mzsql.repr.types import SqlType

#: The most bytes of a text that a function makes.
MAX_RESULT = 100 * 1024 * 1024
TOO_LARGE = "requested length too large"
#: A constant of so many bytes may be written as often as there is a place for it: a text has as many times its bytes at most.
_SHORT = 16


def octets(ast: Ast, engine: Engine) -> Ast:
    """The bytes of a text, as bigint."""
    return s.big(s.call("OCTET_LENGTH" if engine is Engine.SPARK else "STRLEN", ast))


def too_large(size: Ast) -> Ast:
    """Whether so many bytes are too many."""
    return s.gt(size, s.num(MAX_RESULT))


def within(size: Spelling) -> ErrorRule:
    """The rule of a function whose result has ``size`` bytes."""

    def condition(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        return too_large(size(engine, args, typ))

    return ErrorRule(condition, TOO_LARGE)


def total(parts: Sequence[Ast], engine: Engine) -> Ast:
    """The bytes of several texts one after the other, those that are NULL left out."""
    size = s.big(s.num(0))
    for part in parts:
        size = s.add(size, s.coalesce(octets(part, engine), s.big(s.num(0))))
    return size


def is_short(arg: Sql) -> bool:
    """Whether an argument is a constant so short (NULL is one) that nobody has to reckon with how often it is written."""
    try:
        text = constant_text(arg, "a text")
    except Unsupported:
        return False
    return text is None or len(text.encode()) <= _SHORT
