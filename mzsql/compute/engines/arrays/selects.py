"""SELECTs of DuckDB's SQL as relations: filters, joins, unions, groups and windows.

Promise: `relation_of` returns a relation that has a query's rows as DuckDB does, in any order, or raises `Unsupported`,
at once for what is never known here; a run raises it for what depends on types, values and numbers of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from sqlglot import expressions as exp

from mzsql.compute.engines.arrays.groups import Groups, Order, Windows, grouped
from mzsql.compute.engines.arrays.rows import (
    Key,
    Relation,
    aliased,
    filtered,
    paired,
    places_where,
    projected,
    repeated,
    scanned,
    taken,
    united,
)
from mzsql.compute.engines.arrays.scalars import Cell, Run, Scalar, Special, compiled, named
from mzsql.compute.engines.arrays.vectors import Unsupported, joined

#: Named queries.
Names: TypeAlias = Mapping[str, Relation]


def relation_of(query: exp.Expr, names: Names) -> Relation:
    """A query as a relation.

    Args:
        query: a SELECT, or a UNION ALL of such.
        names: the queries that it may name; other names are relations of the run.

    Raises:
        Unsupported: it is not known here.
    """
    parts = [select(one, names) for one in branches(query)]
    return parts[0] if len(parts) == 1 else united(parts)


def branches(query: exp.Expr) -> list[exp.Select]:
    """The SELECTs of a UNION ALL.

    Raises:
        Unsupported: it is not made of such.
    """
    if isinstance(query, exp.Subquery | exp.Paren) and not query.args.get("alias"):
        return branches(query.this)
    if isinstance(query, exp.Union):
        _only(query, "this", "expression", "distinct", "with_")
        if query.args.get("distinct") is not False:
            raise Unsupported
        return [*branches(query.this), *branches(query.expression)]
    if not isinstance(query, exp.Select):
        raise Unsupported
    return [query]


def names_before(query: exp.Expr) -> Names:
    """The queries that stand before a query.

    Raises:
        Unsupported: one of them is not known here.
    """
    found: dict[str, Relation] = {}
    with_ = query.args.get("with_")
    if with_ is None:
        return found
    _only(with_, "expressions")
    for one in with_.expressions:
        if one.args["alias"].args.get("columns"):
            raise Unsupported
        found[one.alias] = relation_of(one.this, dict(found))
    return found


def _only(node: exp.Expr, *known: str) -> None:
    """Raise Unsupported if a node has other parts than the known ones."""
    if any(value for name, value in node.args.items() if name not in known):
        raise Unsupported


def select(query: exp.Select, names: Names) -> Relation:
    """A SELECT as a relation.

    Raises:
        Unsupported: it is not known here.
    """
    _only(query, "expressions", "from_", "joins", "where", "group", "having", "with_")
    if query.args.get("with_") is not None and query.parent is not None:
        raise Unsupported
    rows = _from(query, names)
    where = query.args.get("where")
    if where is not None:
        rows = filtered(rows, compiled(where.this, rows))
    group, having = query.args.get("group"), query.args.get("having")
    if group is not None or any(_aggregates(one) for one in query.expressions):
        return _grouped(query, rows, group, having)
    if having is not None:
        raise Unsupported
    return _projected(query, rows)


def _aggregates(item: exp.Expr) -> bool:
    """Whether an item has an aggregate that is no window."""
    return any(not isinstance(one.parent, exp.Window) for one in item.find_all(exp.AggFunc))


def _called(item: exp.Expr) -> str:
    name = item.alias or (item.name if isinstance(item, exp.Column) else "")
    if not name:
        raise Unsupported
    return name


# --- sources ---


def _from(query: exp.Select, names: Names) -> Relation:
    from_ = query.args.get("from_")
    if from_ is None:
        raise Unsupported
    joins = query.args.get("joins") or []
    source, alias = _table(from_.this, names)
    if not joins:
        # Of the only source columns are named with it or without.
        for part in ("expressions", "where", "group", "having"):
            found = query.args.get(part)
            for one in found if isinstance(found, list) else [found] if found else []:
                for column in one.find_all(exp.Column):
                    if column.table == alias:
                        column.set("table", None)
        return source
    aliases, made = {alias}, aliased(source, alias)
    for one in joins:
        _only(one, "this", "kind", "on")
        if one.args.get("kind") not in ("INNER", "CROSS", None, ""):
            raise Unsupported
        other, name = _table(one.this, names)
        made = _join(made, frozenset(aliases), aliased(other, name), name, one.args.get("on"))
        aliases.add(name)
    return made


def _table(node: exp.Expr, names: Names) -> tuple[Relation, str]:
    """A source of a FROM, and what it is called there."""
    alias = node.args.get("alias")
    if alias is not None and alias.args.get("columns"):
        raise Unsupported
    if isinstance(node, exp.Subquery):
        _only(node, "this", "alias")
        return relation_of(node.this, names), node.alias
    if not isinstance(node, exp.Table):
        raise Unsupported
    _only(node, "this", "alias")
    return names.get(node.name) or scanned(node.name), node.alias or node.name


def _join(
    left: Relation, aliases: frozenset[str], right: Relation, name: str, on: exp.Expr | None
) -> Relation:
    keys: list[Key] = []
    others: list[exp.Expr] = []
    for one in [] if on is None else _conjuncts(on):
        pair = _pair(one, aliases, name)
        if pair is None:
            others.append(one)
        else:
            first, second = compiled(pair[0], left), compiled(pair[1], right)
            keys.append((first, second, isinstance(one, exp.NullSafeEQ)))
    rows = paired(left, right, keys)
    for one in others:
        rows = filtered(rows, compiled(one, rows))
    return rows


def _pair(node: exp.Expr, aliases: frozenset[str], name: str) -> tuple[exp.Expr, exp.Expr] | None:
    """An equality's expression of the sides before and that of the side `name`; None if the condition is no such."""
    if not isinstance(node, exp.EQ | exp.NullSafeEQ):
        return None
    left, right = node.this, node.expression
    if _tables(left) == {name}:
        left, right = right, left
    met = _tables(right) == {name} and bool(_tables(left)) and _tables(left) <= aliases
    return (left, right) if met else None


def _conjuncts(on: exp.Expr) -> list[exp.Expr]:
    node = on.unnest()
    if isinstance(node, exp.And):
        return [*_conjuncts(node.this), *_conjuncts(node.expression)]
    return [node]


def _tables(node: exp.Expr) -> set[str]:
    return {one.table for one in node.find_all(exp.Column)}


# --- groups ---


def _grouped(
    query: exp.Select, rows: Relation, group: exp.Expr | None, having: exp.Expr | None
) -> Relation:
    keys: list[str] = []
    if group is not None:
        _only(group, "expressions")
        if not all(isinstance(one, exp.Column) for one in group.expressions):
            raise Unsupported
        keys = [named(one) for one in group.expressions]
    groups = grouped(rows, keys)
    special = _aggregate_over(groups)
    items = {
        _called(one): compiled(one.unalias(), groups.rows, special) for one in query.expressions
    }
    made = projected(groups.rows, items)
    if having is None:
        return made
    # What a name outside an aggregate means there, a key or an item, is not asked here.
    if any(one.find_ancestor(exp.AggFunc) is None for one in having.find_all(exp.Column)):
        raise Unsupported
    condition = compiled(having.this, groups.rows, special)
    return taken(made, places_where(groups.rows.count, condition))


def _aggregate_over(groups: Groups) -> Special:
    """Knows aggregates over groups."""

    def aggregate(node: exp.Expr) -> Scalar | None:
        if not isinstance(node, exp.AggFunc):
            return None
        if isinstance(node, exp.Count) and isinstance(node.this, exp.Star):
            return lambda run: groups.counted(run, None)
        if any(value for name, value in node.args.items() if name not in ("this", "big_int")):
            raise Unsupported
        value = compiled(node.this, groups.base)
        match node:
            case exp.Sum():
                return lambda run: groups.summed(run, value)
            case exp.Count():
                return lambda run: groups.counted(run, value)
            case exp.Max():
                return lambda run: groups.extreme(run, value, greatest=True)
            case exp.Min():
                return lambda run: groups.extreme(run, value, greatest=False)
        raise Unsupported

    return aggregate


# --- plain selects, with windows ---


def _projected(query: exp.Select, rows: Relation) -> Relation:
    exploded = [one for one in query.expressions if isinstance(one.unalias(), exp.Explode)]
    if exploded:
        return _unnested(query, rows, exploded)
    special = _windows_over(rows)
    items = {_called(one): compiled(one.unalias(), rows, special) for one in query.expressions}
    return projected(rows, items)


def _unnested(query: exp.Select, rows: Relation, exploded: Sequence[exp.Expr]) -> Relation:
    """A select that repeats each row with the values of an array."""
    if len(exploded) > 1 or not isinstance(array := exploded[0].unalias().this, exp.Array):
        raise Unsupported
    if array.find(exp.Column) is not None:
        raise Unsupported
    values = [compiled(one, rows) for one in array.expressions]
    times = len(values)
    base = repeated(rows, times)
    others = [one for one in query.expressions if one not in exploded]
    items = {_called(one): compiled(one.unalias(), base) for one in others}
    items[_called(exploded[0])] = lambda run: joined([value(run) for value in values]).take(
        np.tile(np.arange(times), rows.count(run))
    )
    return projected(base, items)


_ROWS = {"kind": "ROWS", "start": "UNBOUNDED", "start_side": "PRECEDING"}
_END = "UNBOUNDED", "FOLLOWING"
_WHOLE: dict[type[exp.Expr], np.ufunc] = {
    exp.Sum: np.add,
    exp.Max: np.maximum,
    exp.Min: np.minimum,
}


def _windows_over(rows: Relation) -> Special:
    """Knows functions over windows."""
    known: dict[str, Callable[[Run], Windows]] = {}

    def window(node: exp.Expr) -> Scalar | None:
        if not isinstance(node, exp.Window):
            return None
        _only(node, "this", "partition_by", "order", "spec", "over")
        function, spec = node.this, node.args.get("spec")
        if spec is None or any(spec.args.get(name) != value for name, value in _ROWS.items()):
            raise Unsupported
        _only(spec, "kind", "start", "start_side", "end", "end_side")
        value = compiled(function.this, rows)
        text = repr((node.args.get("partition_by"), node.args.get("order")))
        windows = known.get(text)
        if windows is None:
            windows = known[text] = _windows(node, rows)
        if spec.args.get("end") == "CURRENT ROW" and isinstance(function, exp.Sum):
            return lambda run: windows(run).running(value(run))
        whole = _WHOLE.get(type(function))
        if whole is None or (spec.args.get("end"), spec.args.get("end_side")) != _END:
            raise Unsupported
        return lambda run: windows(run).whole(whole, value(run))

    return window


def _windows(node: exp.Window, rows: Relation) -> Callable[[Run], Windows]:
    partition = [compiled(one, rows) for one in node.args.get("partition_by") or []]
    order = node.args.get("order")
    keys = [
        (
            compiled(one.this, rows),
            bool(one.args.get("desc")),
            bool(one.args.get("nulls_first")),
        )
        for one in ([] if order is None else order.expressions)
    ]

    def made(run: Run) -> Windows:
        count = rows.count(run)
        by = [one(run).over(count) for one in partition]
        orders: list[Order] = [
            (run.ordered(one(run).over(count)), falls, first) for one, falls, first in keys
        ]
        return Windows(by, orders, count)

    return Cell(made)
