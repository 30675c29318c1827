"""The parser of a type, and the error for a text it rejects.

Promise: the message is ``invalid input syntax for type …``, with the text quoted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, of
from mzsql.expr.functions.table import Engine, ErrorRule, Spelling, Sql
from mzsql.repr.types import SqlType, type_name


@dataclass(frozen=True)
class Parser:
    """The parser of a type: the spelling of the value, and its errors."""

    value: Spelling
    errors: tuple[ErrorRule, ...]


_INVALID = "invalid input syntax for type"


def _said(kind: str) -> str:
    """A type's name in errors about texts."""
    return kind if kind == "timestamp" else type_name(of(kind))


def invalid(kind: str, detail: Spelling | str = "") -> Spelling:
    """The message ``invalid input syntax for type <type>: [detail: ]"<text>"``."""

    def message(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
        shown = detail if isinstance(detail, str) else ""
        middle = [s.text(f"{shown}: ")] if shown else []
        if callable(detail):
            middle = [detail(engine, args, typ), s.text(": ")]
        lead = s.text(f"{_INVALID} {_said(kind)}: ")
        return s.concat(lead, *middle, s.text('"'), args[0].ast, s.text('"'))

    return message


def null_fails(value: Spelling, message: str | Spelling) -> ErrorRule:
    """The error for a text without a value."""
    return ErrorRule(lambda e, args, typ: s.is_null(value(e, args, typ)), message)
