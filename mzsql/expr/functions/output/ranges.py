"""The text of a range, as PostgreSQL prints it."""

from __future__ import annotations

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.output.containers import ToText
from mzsql.expr.functions.table import Engine
from mzsql.repr.types import TEXT, SqlType


def range_text(ast: Ast, typ: SqlType, engine: Engine, to_text: ToText) -> Ast:
    """The text of a range; NULL for NULL. ``to_text`` makes the texts of its bounds."""
    return s.let(ast, "rt8", _text(s.variable("rt8"), typ.element or TEXT, engine, to_text), engine)


def _text(of: Ast, bound: SqlType, engine: Engine, to_text: ToText) -> Ast:
    def part(name: str) -> Ast:
        return s.field(of, name)

    open_low = s.or_(s.is_null(part("lower")), part("lower_exclusive"))
    closed_high = s.and_(s.is_not_null(part("upper")), part("upper_inclusive"))
    body = s.concat(
        s.case((open_low, s.text("(")), otherwise=s.text("[")),
        s.coalesce(_shown(part("lower"), bound, engine, to_text), s.text("")),
        s.text(","),
        s.coalesce(_shown(part("upper"), bound, engine, to_text), s.text("")),
        s.case((closed_high, s.text("]")), otherwise=s.text(")")),
    )
    empty = s.eq(part("lower_rank"), s.num(0))
    return s.case((empty, s.text("empty")), (s.is_not_null(part("lower_rank")), body))


def _shown(ast: Ast, typ: SqlType, engine: Engine, to_text: ToText) -> Ast:
    """The text of a bound, quoted if it contains a blank, as times and dates before Christ do."""
    text = to_text(ast, typ, engine)
    quoted = s.concat(s.text('"'), text, s.text('"'))
    if typ.kind in ("timestamp", "timestamptz"):
        return quoted
    if typ.kind == "date":
        return s.case((s.matches(text, " ", engine), quoted), otherwise=text)
    return text
