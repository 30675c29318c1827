"""Timestamps in the one format of ISO 8601 that sorts as text: ``2024-02-29T12:34:56.789Z``.

Promise: a text in another format is NULL, never an error. The format has a fixed width and its texts sort like the
timestamps, so a filter on one can become a filter on the other.
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
    # In a pattern, ``$`` may match before a final line feed, so the length is checked too.
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
