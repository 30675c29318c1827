"""Which of an input's updates a step can put anything out for.

Promise: a row of a delta for which `relevance`'s condition is not true is dropped by everything in the statement that reads the delta, so
that the statement means the same over the other rows alone. Filters stand where a statement reads its inputs; looking at them first spares
the lookups, and where no update passes, the whole step: most small transactions are none of most views' business.

The conditions are parts of the statement, which never throw, over the delta's own columns. Those that are too long to be asked of each
update, or say something of the step's times, are not looked into: then every row may matter.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import expressions as exp

from mzsql.expr.engines import to_sql
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.render.times import LOWER, UPPER

#: A longer condition costs more to ask than it spares.
LONGEST = 4_000

_TIMES = frozenset((str(LOWER), str(LOWER - 1), str(UPPER)))


def relevance(statement: exp.Expression, deltas: Iterable[str]) -> dict[str, str]:
    """Of each delta that the statement reads the condition under which a row matters, as DuckDB writes it; none where every row may."""
    wanted = set(deltas)
    readers: dict[str, list[exp.Table]] = {}
    for table in statement.find_all(exp.Table):
        if table.name in wanted:
            readers.setdefault(table.name, []).append(table)
    found: dict[str, str] = {}
    for name, tables in readers.items():
        conditions = [_condition(one) for one in tables]
        known = [one for one in conditions if one is not None]
        if len(known) < len(conditions):
            continue
        texts = dict.fromkeys(to_sql(one, Engine.DUCKDB) for one in known)
        text = " OR ".join(f"({one})" for one in texts)
        if len(text) <= LONGEST:
            found[name] = text
    return found


def _condition(table: exp.Table) -> exp.Expression | None:
    """What one reader asks of a row; None where it takes any, or it cannot be told."""
    query = _only_reader(table)
    if query is None:
        return None
    asked = [where.this] if (where := query.args.get("where")) is not None else []
    outer = _over(query)
    if outer is not None and (where := outer.args.get("where")) is not None:
        inside = _inside(where.this, query)
        if inside is not None:
            asked.append(inside)
    plain = [_unqualified(one) for one in asked if _is_plain(one)]
    return s.and_(*plain) if plain else None


def _unqualified(condition: exp.Expression) -> exp.Expression:
    """A copy that does not say whose columns they are: there is one relation only."""
    made = exp.Paren(this=condition.copy())
    for column in made.find_all(exp.Column):
        column.set("table", None)
    return made


def _only_reader(table: exp.Table) -> exp.Select | None:
    """The query that reads the relation and nothing else."""
    origin = table.parent
    query = origin.parent if isinstance(origin, exp.From) else None
    return query if isinstance(query, exp.Select) and not query.args.get("joins") else None


def _over(query: exp.Select) -> exp.Select | None:
    """The query whose only origin this one is, row by row."""
    inner = query.parent
    origin = inner.parent if isinstance(inner, exp.Subquery) else None
    outer = origin.parent if isinstance(origin, exp.From) else None
    if not isinstance(outer, exp.Select) or outer.args.get("joins"):
        return None
    rowwise = not any(
        query.args.get(one) for one in ("group", "having", "distinct", "limit", "offset", "qualify")
    )
    return outer if rowwise and all(_is_rowwise(item) for item in query.expressions) else None


def _is_rowwise(item: exp.Expression) -> bool:
    """Whether an item has one value for each row, of that row alone."""
    if item.find(exp.AggFunc, exp.Window, exp.Query, exp.Star, exp.UDTF, exp.Explode):
        return False
    return all(str(node.this).upper() != "UNNEST" for node in item.find_all(exp.Anonymous))


def _inside(condition: exp.Expression, query: exp.Select) -> exp.Expression | None:
    """A condition over a query's columns, over what the query reads."""
    items = {item.alias_or_name: item.unalias() for item in query.expressions}
    made = exp.Paren(this=condition.copy())
    for column in list(made.find_all(exp.Column)):
        item = items.get(column.name)
        if item is None:
            return None
        column.replace(exp.Paren(this=item.copy()))
    return made


def _is_plain(condition: exp.Expression) -> bool:
    """Whether a condition is about a row's columns alone."""
    if condition.find(exp.Query, exp.AggFunc, exp.Window, exp.Parameter, exp.Placeholder):
        return False
    literals = condition.find_all(exp.Literal)
    return not any(one.this in _TIMES for one in literals if not one.is_string)
