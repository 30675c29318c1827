"""Moments in the one form of ISO 8601 that sorts as a text: ``2024-02-29T12:34:56.789Z``.

Promise: a text of another form is NULL, never an error. As the form has a fixed width and its texts are in the order of their moments, a
filter on one can be a filter on the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.table import Engine, ScalarFunc, Sql
from mzsql.repr.types import TEXT, TIMESTAMP, SqlType

_FORM = "^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9][.][0-9]{3}Z$"


def _moment(engine: Engine, args: Sequence[Sql], typ: SqlType) -> Ast:
    text = args[0].ast
    # A pattern's end may stand before a line feed.
    there = s.and_(s.eq(s.call("LENGTH", text), s.num(24)), s.matches(text, _FORM, engine))
    body = s.call("REPLACE", s.call("LEFT", text, s.num(23)), s.text("T"), s.text(" "))
    return s.case((there, s.try_cast(body, typ, engine)))


FUNCTIONS: tuple[ScalarFunc, ...] = (
    ScalarFunc(
        key="try_parse_monotonic_iso8601_timestamp",
        name="try_parse_monotonic_iso8601_timestamp",
        args=(TEXT,),
        result=TIMESTAMP,
        value=_moment,
        introduces_nulls=True,
    ),
)
