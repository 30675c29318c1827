"""The text of containers: arrays, lists, maps, records.

Promise: PostgreSQL's format (for lists and maps Materialize's): elements are quoted where they would be parsed
differently, NULL is unquoted, and a boolean inside another value is one letter.
"""

from __future__ import annotations

from collections.abc import Callable

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast, variable_of
from mzsql.expr.functions.table import Engine
from mzsql.repr.types import TEXT, SqlType

#: Makes the text of any value, for those inside containers.
ToText = Callable[[Ast, SqlType, Engine], Ast]

_NESTING = ("array", "list", "map")


def container_text(ast: Ast, typ: SqlType, engine: Engine, to_text: ToText) -> Ast:
    """The text of an array, list, map or record; NULL for NULL.

    Args:
        ast: the value.
        typ: its type.
        engine: the engine.
        to_text: makes the texts of the values inside.
    """
    if typ.kind == "record":
        return _record_text(ast, typ, engine, to_text)
    if typ.kind == "map":
        return _map_text(ast, typ, engine, to_text)
    element = typ.element or TEXT
    name = variable_of(element, "ct")
    body = _shown(s.variable(name), element, engine, to_text)
    return _braced(s.mapped(ast, name, body, engine), ast, engine)


def _braced(texts: Ast, whole: Ast, engine: Engine) -> Ast:
    name = "ARRAY_JOIN" if engine is Engine.SPARK else "ARRAY_TO_STRING"
    joined = s.coalesce(s.call(name, texts, s.text(",")), s.text(""))
    return s.case((s.is_not_null(whole), s.concat(s.text("{"), joined, s.text("}"))))


def inner_text(ast: Ast, typ: SqlType, engine: Engine, to_text: ToText) -> Ast:
    """The text of a value inside another.

    Args:
        ast: the value.
        typ: its type.
        engine: the engine.
        to_text: makes the text of a value that is not inside another.
    """
    if typ.kind == "boolean":
        return s.case((ast, s.text("t")), (s.not_(ast), s.text("f")))
    return to_text(ast, typ, engine)


def _shown(ast: Ast, typ: SqlType, engine: Engine, to_text: ToText, *, in_map: bool = False) -> Ast:
    text = inner_text(ast, typ, engine, to_text)
    if typ.kind not in _NESTING:
        pattern = '[{},"\\\\\\s]|=>' if in_map else '[{},"\\\\\\s]'
        special = s.or_(
            s.matches(text, pattern, engine),
            s.eq(text, s.text("")),
            s.eq(s.call("UPPER", text), s.text("NULL")),
        )
        text = s.case((special, _quoted(text, '\\"')), otherwise=text)
    return s.case((s.is_null(ast), s.text("NULL")), otherwise=text)


def _quoted(text: Ast, quote: str) -> Ast:
    escaped = s.call("REPLACE", text, s.text("\\"), s.text("\\\\"))
    return s.concat(
        s.text('"'), s.call("REPLACE", escaped, s.text('"'), s.text(quote)), s.text('"')
    )


def _map_text(ast: Ast, typ: SqlType, engine: Engine, to_text: ToText) -> Ast:
    name = variable_of((typ.element or TEXT), "cm")
    entry = s.variable(name)
    key = _shown(s.field(entry, "key"), TEXT, engine, to_text, in_map=True)
    value = s.field(entry, "value")
    shown = _shown(value, (typ.element or TEXT), engine, to_text, in_map=True)
    whole = s.concat(key, s.text("=>"), shown)
    return _braced(s.mapped(s.call("MAP_ENTRIES", ast), name, whole, engine), ast, engine)


def _record_text(ast: Ast, typ: SqlType, engine: Engine, to_text: ToText) -> Ast:
    parts: list[Ast] = []
    for i, (_, column) in enumerate(typ.fields, start=1):
        field = s.field(ast, f"f{i}")
        text = inner_text(field, column.type, engine, to_text)
        special = s.or_(s.matches(text, '[(),"\\\\\\s]', engine), s.eq(text, s.text("")))
        shown = s.case(
            (s.is_null(field), s.text("")), (special, _quoted(text, '""')), otherwise=text
        )
        parts += [s.text(","), shown] if parts else [shown]
    body = s.concat(s.text("("), *parts, s.text(")"))
    return s.case((s.is_not_null(ast), body))
