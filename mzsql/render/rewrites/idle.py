"""Prunes a statement by relations that are known to be empty.

Promise: `without` returns a statement with the same result as long as the named relations are empty. A query that
can only return rows of them is removed, with the branches and relations that served it. A step in which one input of
five has updates is a fraction of the full text, and a small step costs mainly its text (parsing, binding, planning).
Only what certainly has no rows is removed: a query that returns a row from no input, such as an ungrouped aggregate,
stays, with what it reads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from sqlglot import expressions as exp

from mzsql.expr.nodes import nodes, relations_in


def without(statement: exp.Expression, empty: AbstractSet[str]) -> exp.Expression | None:
    """The statement, given that some relations are empty; None if it then has no rows.

    Args:
        statement: as rendered; it is not modified. Only what remains is copied, because copying is as slow as
            writing text.
        empty: names of relations.
    """
    with_ = statement.args.get("with_")
    known = set(empty)
    ctes: dict[str, exp.CTE] = {}
    for cte in with_.expressions if with_ is not None else ():
        ctes[cte.alias] = cte
        if not _has_rows(cte.this, known):
            known.add(cte.alias)
    if not _has_rows(statement, known):
        return None
    left = _left(statement, known)
    read = _reached(left, ctes, known)
    used = [_with(cte, {"this": read[name]}) for name, cte in ctes.items() if name in read]
    if used:
        left.set("with_", exp.With(expressions=used))
    return left


def read_without(statement: exp.Expression, empty: AbstractSet[str]) -> frozenset[str] | None:
    """The relations that `without` leaves in the statement, its own among them, found without copying anything; None
    if it then has no rows.
    """
    with_ = statement.args.get("with_")
    known = set(empty)
    ctes: dict[str, exp.Expression] = {}
    for cte in with_.expressions if with_ is not None else ():
        ctes[cte.alias] = cte.this
        if not _has_rows(cte.this, known):
            known.add(cte.alias)
    if not _has_rows(statement, known):
        return None
    found = set(_read(statement, known))
    waiting = list(found)
    while waiting:
        name = waiting.pop()
        query = ctes.get(name)
        if query is None:
            continue
        # As in `_reached`.
        new = set(relations_in(query) if name in known else _read(query, known)) - found
        found |= new
        waiting += new
    return frozenset(found)


def _read(query: exp.Expression, empty: AbstractSet[str]) -> set[str]:
    """The relations that are read by what remains of a query that may have rows, its WITH aside."""
    if isinstance(query, exp.Union) and not query.args.get("distinct"):
        sides = [one for one in (query.this, query.expression) if _has_rows(one, empty)]
        # As in `_left`: what else a union has goes with one of its sides.
        rest = () if len(sides) == 1 else ("this", "expression")
        found = _read_in(query, rest) if rest else set()
        return found.union(*(_read(one, empty) for one in sides))
    origins = _origins(query) if isinstance(query, exp.Select) else []
    found = _read_in(query, ("from_", "joins") if origins else ())
    for one in origins:
        source = one.this
        if isinstance(source, exp.Subquery) and _has_rows(source.this, empty):
            found |= _read(source.this, empty) | _read_in(source, ("this",))
            found |= _read_in(one, ("this",))
        else:
            found |= relations_in(one)
    return found


def _read_in(node: exp.Expression, but: Collection[str]) -> set[str]:
    """The relations that a node reads in its parts, some parts and its WITH aside."""
    found: set[str] = set()
    for name, value in node.args.items():
        if name == "with_" or name in but:
            continue
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, exp.Expression):
                found |= relations_in(one)
    return found


def _has_rows(query: exp.Expression, empty: AbstractSet[str]) -> bool:
    """Whether a query may have rows. It recurses, which is safe because unions are balanced and do not nest deeply."""
    if isinstance(query, exp.Union):
        # Only UNION ALL is taken apart, which is what rendering makes of a plan's unions.
        if query.args.get("distinct"):
            return True
        return _has_rows(query.this, empty) or _has_rows(query.expression, empty)
    return not isinstance(query, exp.Select) or _may_pass(query, empty) or of_nothing(query)


def _may_pass(query: exp.Select, empty: AbstractSet[str]) -> bool:
    """Whether the relations that a query reads may give it rows."""
    if _lets_none_pass(query):
        return False
    origins = _origins(query)
    # An outer join may have rows where one of its sides has none.
    if any(isinstance(one, exp.Join) and one.side for one in origins):
        return True
    return all(_may_read(one.this, empty) for one in origins)


def _lets_none_pass(query: exp.Select) -> bool:
    where = query.args.get("where")
    return where is not None and isinstance(where.this, exp.Boolean) and not where.this.this


def _may_read(source: exp.Expression, empty: AbstractSet[str]) -> bool:
    if isinstance(source, exp.Table):
        return source.name not in empty
    return not isinstance(source, exp.Subquery) or _has_rows(source.this, empty)


def _left(query: exp.Expression, empty: AbstractSet[str]) -> exp.Expression:
    """A copy of what remains of a query that may have rows, without its WITH."""
    if isinstance(query, exp.Union) and not query.args.get("distinct"):
        sides = [one for one in (query.this, query.expression) if _has_rows(one, empty)]
        made = [_left(one, empty) for one in sides]
        if len(made) == 1:
            return made[0]
        return _with(query, {"this": made[0], "expression": made[1], "with_": None})
    parts: dict[str, object] = {"with_": None}
    origins = _origins(query) if isinstance(query, exp.Select) else []
    if origins:
        made = [_origin(one, empty) for one in origins]
        parts |= {"from_": made[0], "joins": made[1:]}
    return _with(query, parts)


def _origins(query: exp.Select) -> list[exp.Expression]:
    """A query's FROM and its joins; empty if it has no FROM."""
    from_ = query.args.get("from_")
    return [] if from_ is None else [from_, *(query.args.get("joins") or ())]


def _origin(origin: exp.Expression, empty: AbstractSet[str]) -> exp.Expression:
    source = origin.this
    if not isinstance(source, exp.Subquery) or not _has_rows(source.this, empty):
        return origin.copy()
    return _with(origin, {"this": _with(source, {"this": _left(source.this, empty)})})


def _with(node: exp.Expression, parts: Mapping[str, object]) -> exp.Expression:
    """A copy of a node with some parts replaced, which are then not copied."""
    args = {
        name: parts[name] if name in parts else _copied(value) for name, value in node.args.items()
    }
    made = type(node)(**args)
    made.comments = node.comments
    return made


def _copied(value: object) -> object:
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value.copy() if isinstance(value, exp.Expression) else value


def of_nothing(query: exp.Select) -> bool:
    """Whether a query may return a row without reading one."""
    if query.args.get("from_") is None and not _lets_none_pass(query):
        return True
    if query.args.get("group") is not None or query.args.get("having") is not None:
        # A grouped query has no group without rows, and every HAVING without GROUP BY that is rendered here asks for
        # rows.
        return False
    aggregates = (node for item in query.expressions for node in nodes(item, exp.AggFunc))
    return any(not _windowed(node, query) for node in aggregates)


def _windowed(node: exp.Expr, top: exp.Select) -> bool:
    parent = node.parent
    while parent is not None and parent is not top:
        if isinstance(parent, exp.Window):
            return True
        parent = parent.parent
    return False


def _reached(
    body: exp.Expression, ctes: Mapping[str, exp.CTE], empty: AbstractSet[str]
) -> dict[str, exp.Expression]:
    """What remains of the CTEs that a body reads, directly or through others."""
    found: dict[str, exp.Expression] = {}
    waiting = [body]
    while waiting:
        for name in relations_in(waiting.pop()):
            if name in ctes and name not in found:
                query = ctes[name].this
                # One without rows is only read by what returns a row all the same, and stays as it is.
                found[name] = query.copy() if name in empty else _left(query, empty)
                waiting.append(found[name])
    return found
