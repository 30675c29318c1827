"""Which of an input's updates can affect a step's result.

Promise: everything in the statement that reads a delta drops the rows for which `relevance`'s condition is not true,
so the statement has the same result over the other rows alone. Filters stand where a statement reads its inputs;
evaluating them first saves the lookups, and the whole step if no update passes: most small transactions do not
concern most views.

The conditions are parts of the statement over the delta's own columns, and never throw. Conditions that are too long
to be evaluated for each update, or that depend on the step's times, are ignored: then every row may matter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from sqlglot import expressions as exp

from mzsql.expr.engines import to_sql
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.expr.nodes import nodes
from mzsql.render.times import LOWER, UPPER

#: A longer condition, in characters, costs more than it saves.
LONGEST = 4_000

_TIMES = frozenset((str(LOWER), str(LOWER - 1), str(UPPER)))


def relevance(statement: exp.Expression, deltas: Iterable[str]) -> dict[str, str]:
    """For each delta that the statement reads the condition under which a row matters, as DuckDB's SQL; absent if every
    row may matter.
    """
    wanted = set(deltas)
    readers: dict[str, list[exp.Table]] = {}
    for table in nodes(statement, exp.Table):
        if table.name in wanted and isinstance(table, exp.Table):
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


#: Marks a WHERE that every row passes, in its node's `meta`.
SATISFIED = "mz_satisfied"


def satisfied(statement: exp.Expression, conditions: Mapping[str, str]) -> exp.Expression:
    """The statement with the filters marked as `SATISFIED` that do nothing where each relation only has rows for which
    its condition (of `relevance`) is true. They are left in it, as what they say of the rows may still be of use.
    """
    if not conditions:
        return statement
    made = statement.copy()
    for table in nodes(made, exp.Table):
        known = conditions.get(table.name) if isinstance(table, exp.Table) else None
        if known is None:
            continue
        condition = _condition(table)
        if condition is not None and f"({to_sql(condition, Engine.DUCKDB)})" == known:
            for query, asked in _asked(table):
                if _is_plain(asked):
                    query.args["where"].meta[SATISFIED] = True
    return made


def _condition(table: exp.Table) -> exp.Expression | None:
    """The condition of one reader on a row; None if there is none, or it cannot be determined."""
    plain = [_unqualified(asked) for _, asked in _asked(table) if _is_plain(asked)]
    return s.and_(*plain) if plain else None


def _asked(table: exp.Table) -> Iterator[tuple[exp.Select, exp.Expression]]:
    """The queries in which a reader asks something of its rows, each with the condition over these."""
    query = _only_reader(table)
    if query is None:
        return
    if (where := query.args.get("where")) is not None:
        yield query, where.this
    outer = _over(query)
    if outer is not None and (where := outer.args.get("where")) is not None:
        inside = _inside(where.this, query)
        if inside is not None:
            yield outer, inside


def _unqualified(condition: exp.Expression) -> exp.Expression:
    """A copy without table qualifiers: there is only one relation."""
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
    """The query that reads only this one, if this one is row-wise."""
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
    """Whether an item's value depends on a single row."""
    if item.find(exp.AggFunc, exp.Window, exp.Query, exp.Star, exp.UDTF, exp.Explode):
        return False
    return all(str(node.this).upper() != "UNNEST" for node in nodes(item, exp.Anonymous))


def _inside(condition: exp.Expression, query: exp.Select) -> exp.Expression | None:
    """A condition over a query's columns, rewritten over what the query reads."""
    items = {item.alias_or_name: item.unalias() for item in query.expressions}
    made = exp.Paren(this=condition.copy())
    for column in list(made.find_all(exp.Column)):
        item = items.get(column.name)
        if item is None:
            return None
        column.replace(exp.Paren(this=item.copy()))
    return made


def _is_plain(condition: exp.Expression) -> bool:
    """Whether a condition depends on a row's columns only."""
    if condition.find(exp.Query, exp.AggFunc, exp.Window, exp.Parameter, exp.Placeholder):
        return False
    literals = condition.find_all(exp.Literal)
    return not any(one.this in _TIMES for one in literals if not one.is_string)
