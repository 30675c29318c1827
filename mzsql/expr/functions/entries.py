"""Keys and values in DuckDB lists.

Promise: time and memory are not quadratic in the length of the list: no key is searched for in the whole list.
"""

from __future__ import annotations

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.declare import Ast
from mzsql.expr.functions.table import Engine


def last_of_each(entries: Ast, depth: str) -> Ast:
    """The last struct (key, value) of each key in a list, in the order of keys; NULL keys are omitted.

    Args:
        entries: the list.
        depth: a suffix that makes the lambdas' parameters differ from those around.
    """
    e, i, t, v, p, q = (f"{lead}{depth}" for lead in ("ee", "ei", "et", "ev", "ep", "eq"))
    entry = s.variable(e)
    numbered = s.struct(key=s.field(entry, "key"), at=s.variable(i), value=s.field(entry, "value"))
    placed = s.call("LIST_TRANSFORM", entries, s.lambda_((e, i), numbered))
    there = s.lambda_((t,), s.is_not_null(s.field(s.variable(t), "key")))
    ordered = s.call("LIST_SORT", s.call("LIST_FILTER", placed, there))
    return s.let(ordered, v, _before_others(s.variable(v), p, q), Engine.DUCKDB)


def _before_others(ordered: Ast, pair: str, last: str) -> Ast:
    """The elements, of a list sorted by key, that are followed by another key or by nothing."""
    pairs = s.call("LIST_ZIP", ordered, s.call("LIST_SLICE", ordered.copy(), s.num(2), s.num(-1)))
    one, other = (s.call("STRUCT_EXTRACT_AT", s.variable(pair), s.num(n)) for n in (1, 2))
    ends = s.or_(s.is_null(other), s.neq(s.field(other.copy(), "key"), s.field(one, "key")))
    return s.call(
        "LIST_TRANSFORM",
        s.call("LIST_FILTER", pairs, s.lambda_((pair,), ends)),
        s.lambda_((last,), s.call("STRUCT_EXTRACT_AT", s.variable(last), s.num(1))),
    )
