"""What is left of a statement where some of its relations have no rows.

Promise: `without` leaves a statement that means the same as long as the named relations are empty. A query that reads nothing but rows of
them goes, and what goes takes along the branches and the relations that it was for: a step in which one input of five has updates
is a fraction of the whole text, and the text is what a small step costs (parsing, binding, planning). Only what certainly has no
rows goes: a query that would put out a row of nothing, such as an aggregate without groups, stays.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from sqlglot import expressions as exp


def without(statement: exp.Expression, empty: AbstractSet[str]) -> exp.Expression | None:
    """The statement, given that some relations are empty; None where nothing is left of it.

    Args:
        statement: as rendered; it is not changed.
        empty: names of relations.
    """
    body = statement.copy()
    with_ = body.args.get("with_")
    body.set("with_", None)
    known = set(empty)
    kept: dict[str, exp.CTE] = {}
    for cte in with_.expressions if with_ is not None else ():
        query = _left(cte.this, known)
        if query is None:
            known.add(cte.alias)
        else:
            cte.set("this", query)
            kept[cte.alias] = cte
    left = _left(body, known)
    if left is None:
        return None
    read = _reached(left, kept)
    used = [cte for name, cte in kept.items() if name in read]
    if used:
        left.set("with_", exp.With(expressions=used))
    return left


def _left(query: exp.Expression, empty: AbstractSet[str]) -> exp.Expression | None:
    """What is left of a query; None for no rows. Branches of unions are many and do not nest deeply."""
    if isinstance(query, exp.Union):
        if query.args.get("distinct"):
            return query
        sides = _left(query.this, empty), _left(query.expression, empty)
        if sides[0] is None or sides[1] is None:
            return sides[0] if sides[1] is None else sides[1]
        query.set("this", sides[0])
        query.set("expression", sides[1])
        return query
    if not isinstance(query, exp.Select) or _of_nothing(query):
        return query
    where = query.args.get("where")
    if where is not None and isinstance(where.this, exp.Boolean) and not where.this.this:
        return None
    origins = [query.args.get("from_"), *(query.args.get("joins") or ())]
    if any(isinstance(one, exp.Join) and one.side for one in origins):
        return query
    for origin in origins:
        if origin is None:
            continue
        source = origin.this
        if isinstance(source, exp.Table) and source.name in empty:
            return None
        if isinstance(source, exp.Subquery):
            inner = _left(source.this, empty)
            if inner is None:
                return None
            source.set("this", inner)
    return query


def _of_nothing(query: exp.Select) -> bool:
    """Whether a query may put out a row where it reads none."""
    if query.args.get("from_") is None:
        return True
    if query.args.get("group") is not None or query.args.get("having") is not None:
        # With groups there is none of nothing; a condition over all rows here is always that there are some.
        return False
    aggregates = (node for item in query.expressions for node in item.find_all(exp.AggFunc))
    return any(not _windowed(node, query) for node in aggregates)


def _windowed(node: exp.Expression, top: exp.Select) -> bool:
    parent = node.parent
    while parent is not None and parent is not top:
        if isinstance(parent, exp.Window):
            return True
        parent = parent.parent
    return False


def _reached(body: exp.Expression, ctes: dict[str, exp.CTE]) -> set[str]:
    found: set[str] = set()
    waiting = [body]
    while waiting:
        for table in waiting.pop().find_all(exp.Table):
            name = table.name
            if name in ctes and name not in found:
                found.add(name)
                waiting.append(ctes[name].this)
    return found
