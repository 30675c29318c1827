"""Reduces with MIN and MAX: what is kept, and how a group's row is computed from it.

Promise: each argument has an arrangement of its own, with its values by group and in order (`extreme_order`), of
which a step reads only the first and the last. Everything else is partial sums, as for a Reduce without MIN and MAX.
NULLs are not kept: whether a group exists follows from its count of rows or, if an argument is never NULL, from that
having a value. All parts are united in one relation with one aggregation over it, so a Reduce of ten extremes and
ten sums takes no more statements than one of either.

If other aggregates need all of a group's rows, MIN and MAX use these too, and the Reduce keeps whole rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Sql
from mzsql.expr.scalar import ColumnOrder
from mzsql.lir import plan as lir
from mzsql.render.nodes import groups as g
from mzsql.render.nodes.fronts import order_of
from mzsql.render.nodes.renderer import Renderer
from mzsql.render.rendered import Front
from mzsql.render.statement import (
    DIFF,
    ERROR,
    Ast,
    col,
    named,
    no_error,
    null_of,
    select,
    union_all,
)
from mzsql.render.updates import consolidated, remaining, summed
from mzsql.repr.types import ColumnType

#: Column that says which part a row belongs to: the number of an argument, or `SUMS`.
PART = "mz_part"
SUMS = -1


@dataclass(frozen=True)
class Values:
    """One argument of MIN or MAX.

    Attributes:
        column: its position in key ++ values.
        typ: its type.
        fronts: which of its values are needed.
    """

    column: int
    typ: ColumnType
    fronts: tuple[Front, ...]


@dataclass(frozen=True)
class Parts:
    """What a Reduce with MIN or MAX keeps.

    Attributes:
        groups: the Reduce.
        values: the distinct arguments of MIN and MAX.
        of: for each MIN and MAX, by its position among all aggregates, its argument's position in `values`.
        sums: the other aggregates alone; None if neither they nor the count of rows are needed.
    """

    groups: g.Groups
    values: tuple[Values, ...]
    of: Mapping[int, int]
    sums: g.Groups | None

    def columns(self, number: int) -> tuple[ColumnType, ...]:
        """The columns of an argument's arrangement."""
        return (*self.groups.key, self.values[number].typ)

    @property
    def sum_columns(self) -> tuple[ColumnType, ...]:
        """The columns of the arrangement of partial sums."""
        assert self.sums is not None
        return (*self.sums.key, *self.sums.sums)


def parts_of(groups: g.Groups) -> Parts | None:
    """How a Reduce with MIN or MAX is kept; None if it has neither, or has aggregates that need whole groups."""
    kinds = [one.func.kind for one in groups.aggregates]
    if "hierarchical" not in kinds or "basic" in kinds:
        return None
    places: dict[int, int] = {}
    found: list[Values] = []
    of: dict[int, int] = {}
    for position, one in enumerate(groups.aggregates):
        if one.func.kind != "hierarchical":
            continue
        same = groups.row.projection[one.argument]
        place = places.setdefault(same, len(found))
        if place == len(found):
            found.append(Values(one.argument, one.argument_type, ()))
        front = Front(1, back=one.func.name == "max")
        known = found[place]
        if front not in known.fronts:
            found[place] = replace(known, fronts=(*known.fronts, front))
        of[position] = place
    others = tuple(one for one in groups.aggregates if one.func.kind == "accumulable")
    counted = bool(others) or all(one.typ.nullable for one in found)
    sums = replace(groups, aggregates=others) if counted else None
    return Parts(groups, tuple(found), of, sums)


def extreme_order(parts: Parts, number: int) -> tuple[ColumnOrder, ...]:
    """The order in which an argument's values are kept."""
    k = parts.groups.arity
    return order_of([ColumnOrder(k)], parts.columns(number), k)


def pairs(parts: Parts, number: int, rows: str, meta: Sequence[str]) -> exp.Select:
    """An argument's values by group, with their multiplicities, from good rows key ++ values; `meta` are further
    columns to group by.
    """
    k = parts.groups.arity
    value = col(f"c{parts.values[number].column}")
    keys: list[Ast] = [col(f"c{i}") for i in range(k)]
    extra: list[Ast] = [col(name) for name in meta]
    return consolidated(
        rows,
        [*keys, value, *extra],
        shown=[*keys, named(value, f"c{k}"), *extra],
        where=[s.is_not_null(value)] if parts.values[number].typ.nullable else [],
    )


def together(
    r: Renderer, parts: Parts, values: Sequence[str], sums: str | None, meta: Sequence[str]
) -> exp.Expression:
    """The parts as one relation: key, v0 … (values), s0 … (sums), the part, `meta`."""
    groups, engine = parts.groups, r.engine
    k = groups.arity
    keys: list[Ast] = [col(f"c{i}") for i in range(k)]
    extra: list[Ast] = [col(name) for name in meta]
    types = () if parts.sums is None else parts.sums.sums
    # Aggregates ignore NULL, so each part's rows contribute only to its own columns.
    blank_values: list[Ast] = [
        named(null_of(one.typ, engine), f"v{i}") for i, one in enumerate(parts.values)
    ]
    blank_sums: list[Ast] = [named(null_of(typ, engine), f"s{i}") for i, typ in enumerate(types)]
    branches: list[exp.Expression] = []
    for number, relation in enumerate(values):
        own = list(blank_values)
        own[number] = named(col(f"c{k}"), f"v{number}")
        part = named(s.integer(s.num(number)), PART)
        branches.append(select([*keys, *own, *blank_sums, part, *extra], relation))
    if sums is not None:
        contributions: list[Ast] = [named(col(f"c{k + i}"), f"s{i}") for i in range(len(types))]
        part = named(s.integer(s.num(SUMS)), PART)
        branches.append(select([*keys, *blank_values, *contributions, part, *extra], sums))
    return union_all(branches)


def totals(r: Renderer, parts: Parts, qualifier: str | None = None) -> tuple[list[Ast], list[Ast]]:
    """For the rows of `together`: the columns to group by, and the sums, the last of which is that of the diffs."""
    k = parts.groups.arity
    types = () if parts.sums is None else parts.sums.sums
    diff = col(DIFF, qualifier) if qualifier else col(DIFF)

    def at(name: str) -> exp.Column:
        return col(name, qualifier) if qualifier else col(name)

    by: list[Ast] = [at(f"c{i}") for i in range(k)]
    by += [at(f"v{i}") for i in range(len(parts.values))]
    by.append(at(PART))
    made: list[Ast] = []
    for i, typ in enumerate(types):
        term = s.cast(s.mul(at(f"s{i}"), diff), typ.type, r.engine)
        made.append(named(s.cast(exp.Sum(this=term), typ.type, r.engine), f"s{i}"))
    made.append(named(summed(qualifier), DIFF))
    return by, made


def there(parts: Parts, qualifier: str | None = None) -> Ast:
    """Whether a group of rows of `together` exists: a value whose diffs add up to more than 0, or partial sums."""
    positive = remaining(qualifier, positive=True)
    if parts.sums is None:
        return positive
    part = col(PART, qualifier) if qualifier else col(PART)
    return s.or_(s.eq(part, s.num(SUMS)), positive)


def results(
    r: Renderer, node: lir.Reduce, parts: Parts, rows: str, by: Sequence[str], suffix: str
) -> exp.Select:
    """Key ++ aggregates (mz_error if one can fail, and `by`) from the consolidated rows of the parts."""
    groups, engine = parts.groups, r.engine
    k = groups.arity
    types = () if parts.sums is None else parts.sums.sums
    keys: list[Ast] = [*(col(f"c{i}") for i in range(k)), *(col(name) for name in by)]
    items = list(keys)
    for position, place in parts.of.items():
        one = groups.aggregates[position]
        assert one.func.value is not None
        argument = Sql(col(f"v{place}"), parts.values[place].typ.type)
        made = one.func.value(engine, [argument], one.expr.typ)
        items.append(named(s.cast(made, one.expr.typ, engine), f"x{position}"))
    for i, typ in enumerate(types):
        total = exp.Sum(this=col(f"s{i}"))
        items.append(named(s.cast(total, typ.type, engine), f"s{i}"))
    inner = select(items, rows, group=keys)
    if parts.sums is not None:
        inner.set(
            "having", exp.Having(this=s.gt(exp.Sum(this=col(f"s{len(types) - 1}")), s.num(0)))
        )
    elif not keys:
        # Without GROUP BY an aggregate over no rows would return a row.
        inner.set("having", exp.Having(this=s.gt(exp.Count(this=exp.Star()), s.num(0))))
    found = r.define(node.lir_id, f"{suffix}g", inner)
    sums = [Sql(col(f"s{i}"), typ.type) for i, typ in enumerate(types)]
    values, error = ([], None) if parts.sums is None else g.finished(parts.sums, engine, sums)
    finished = iter(values)
    out: list[Ast] = [col(f"c{i}") for i in range(k)]
    for position in range(len(groups.aggregates)):
        value = col(f"x{position}") if position in parts.of else next(finished)
        out.append(named(value, f"c{k + position}"))
    if g.can_fail(groups):
        out.append(named(no_error(engine) if error is None else error, ERROR))
    out += [col(name) for name in by]
    return select(out, found)


def added_up(r: Renderer, parts: Parts, united: str) -> exp.Select:
    """The parts' rows at one time, added up."""
    by, sums = totals(r, parts)
    return select([*by, *sums], united, group=by, having=there(parts))
