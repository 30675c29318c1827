"""Reduce in a step.

Promise: only the groups that updates touch are looked at. Partial sums are rolled forward over a group's times by
one window: at each time the row of the sums before is retracted and that of the sums after is inserted (if they are
equal, the two cancel). MIN and MAX look at the first and last values of a group (`mzsql.render.nodes.extremes`) at each of
its times in the step, and at ``lower - 1`` for what must be retracted first. Other aggregates and window functions
look at all rows of the group at these times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Sql
from mzsql.expr.scalar import Column
from mzsql.lir import plan as lir
from mzsql.lir.forms import reduce_form
from mzsql.render.nodes import extremes as x
from mzsql.render.nodes import groups as g
from mzsql.render.nodes import windows as w
from mzsql.render.nodes.collection import (
    Arranged,
    Collection,
    Trace,
    either,
    relation_trace,
    through_mfp,
    within,
)
from mzsql.render.nodes.rows import output_types
from mzsql.render.statement import (
    DIFF,
    ERROR,
    TIME,
    Ast,
    big,
    col,
    explode,
    join,
    named,
    no_error,
    ordered,
    same,
    select,
    subquery,
    union_all,
    window,
)
from mzsql.render.step.rolled import Sum, rolled
from mzsql.render.step.state import Nodes, StepState
from mzsql.render.updates import consolidated, remaining, summed
from mzsql.repr.types import ColumnType

SIGN = "mz_sign"
NEXT = "mz_next"


def reduce(r: StepState, node: lir.Reduce) -> Collection:
    """Render a Reduce's updates, arranged by its key."""
    below = r.render(node.input)
    row = g.key_values(node, len(below.columns))
    groups = g.plan_groups(node, below.columns, output_types(row, below.columns))
    rows = r.apply(node.lir_id, "v", groups.row, below)
    parts = x.parts_of(groups)
    if groups.accumulable:
        made, name, derived = _accumulated(r, node, groups, rows)
    elif parts is not None:
        made, name, derived = _parted(r, node, parts, rows)
    else:
        made, name, derived = _reread(r, node, groups, rows)
    form = reduce_form(groups.arity, len(made.columns))
    state = _state_trace(name, groups)
    key_types = made.columns

    def arranged() -> Arranged:
        good = r.good(replace(made), node.lir_id, "g")
        before = derived()
        full = r.full(r.name(node.lir_id, "f"), before, good, len(made.columns))
        return Arranged(
            form.key, form.permutation, form.thinning, key_types, full, good, name, state, before
        )

    made.arranged[form.key] = r.once(arranged)
    return made


def _state_trace(name: str, groups: g.Groups) -> Trace:
    """The trace of the state's rows: their key columns are those of the arrangement."""
    keys = within(relation_trace(name, groups.key), groups.arity)
    return through_mfp(keys, groups.after)


def _need(r: StepState, name: str, groups: g.Groups, rows: Collection) -> None:
    r.need(name, tuple(Column(i) for i in range(groups.arity)), rows)


# --- partial sums --------------------------------------------------------------------------------


def _accumulated(
    r: StepState, node: lir.Reduce, groups: g.Groups, rows: Collection
) -> tuple[Collection, str, Callable[[], str]]:
    k = groups.arity
    if r.at_once:
        running, name = _added_at_once(r, node, groups, rows)
    else:
        sums, name = _partial_sums(r, node, groups, rows)
        running = _rolled(r, node, groups, rows.errors, sums, name)
    signed = _signed(r, node, groups, rows.errors, running)
    columns = (*groups.key, *groups.sums)
    changed = Collection(signed, columns, rows.errors, within(rows.trace, k))
    made = g.from_sums(r, node, groups, changed, "o", "")

    def derived() -> str:
        return _state_from_sums(r, node, groups, name)

    return made, name, derived


def _contributed(r: StepState, node: lir.Reduce, groups: g.Groups, rows: Collection) -> str:
    """What each of the step's updates adds to its group's sums."""
    parts: list[exp.Expression] = [g.contributions(r, groups, rows, [TIME])]
    parts += [
        _distinct_contributions(r, node, groups, rows, number, one)
        for number, one in groups.distinct
    ]
    return r.define(node.lir_id, "c", union_all(parts))


def _partial_sums(
    r: StepState, node: lir.Reduce, groups: g.Groups, rows: Collection
) -> tuple[str, str]:
    """What the step's updates add to each group's sums at each time; and the name of the arrangement of the sums
    before.
    """
    source = _contributed(r, node, groups, rows)
    by = [*([ERROR] if rows.errors else []), TIME]
    sums = r.define(node.lir_id, "p", g.summed(r, groups, source, by))
    return sums, _keep_sums(r, node, groups, rows, sums)


def _keep_sums(
    r: StepState, node: lir.Reduce, groups: g.Groups, rows: Collection, sums: str
) -> str:
    """Keep what a step adds to groups' sums; return the name of the arrangement."""
    k = groups.arity
    width = k + len(groups.sums)
    # Kept are the changes of the sums, each with diff 1: a group's totals are the sum over all its rows, and nothing
    # is retracted.
    batch_items: list[Ast] = [col(f"c{i}") for i in range(width)]
    batch_items += [col(TIME), named(big(1, r.engine), DIFF)]
    where = [s.is_null(col(ERROR))] if rows.errors else []
    batch = r.define(node.lir_id, "b", select(batch_items, sums, where=where))
    columns = (*groups.key, *groups.sums)
    name = r.keep(node, "acc", batch, columns, k, tuple(range(k, width)))
    _need(r, name, groups, rows)
    return name


def _state_sums(r: StepState, groups: g.Groups) -> list[Ast]:
    """The kept sums of a row. Times the diff, because compaction may have merged equal rows into one with a larger diff."""
    k = groups.arity
    return [
        s.cast(s.mul(col(f"c{k + i}"), col(DIFF)), typ.type, r.engine)
        for i, typ in enumerate(groups.sums)
    ]


def _added_at_once(
    r: StepState, node: lir.Reduce, groups: g.Groups, rows: Collection
) -> tuple[str, str]:
    """For each touched group what a step with one time adds to its sums (c0 …), and the sums after it (w0 …); and the
    name of the arrangement of the sums before.

    State and updates are added up by one GROUP BY: an engine pays more for another one than for the rows of a step.
    """
    lid, k, engine = node.lir_id, groups.arity, r.engine
    source, name = _contributed(r, node, groups, rows), r.state_name(node, "acc")
    keys: list[Ast] = [col(f"c{i}") for i in range(k)]
    error = [col(ERROR)] if rows.errors else []
    state, new = list(keys), list(keys)
    for i, (part, typ) in enumerate(zip(_state_sums(r, groups), groups.sums, strict=True)):
        state += [named(part, f"s{i}"), named(s.cast(s.num(0), typ.type, engine), f"n{i}")]
        new += [col(f"s{i}"), named(col(f"s{i}"), f"n{i}")]
    state += [named(no_error(engine), ERROR)] if rows.errors else []
    both = [select([*state, col(TIME)], name), select([*new, *error, col(TIME)], source)]
    united = r.define(lid, "u", union_all(both))
    by = [*keys, *error]

    def added(column: str, typ: ColumnType) -> Ast:
        total = s.cast(exp.Sum(this=col(column)), typ.type, engine)
        # Every remaining group has an update, so it is not NULL; without keys that has to be said.
        return total if by else s.coalesce(total, s.cast(s.num(0), typ.type, engine))

    items = list(by)
    for i, typ in enumerate(groups.sums):
        items.append(named(added(f"n{i}", typ), f"c{k + i}"))
        items.append(named(added(f"s{i}", typ), f"w{i}"))
    last = exp.Max(this=col(TIME))
    items.append(named(last, TIME))
    touched = s.gte(last.copy(), big(r.lower, engine))
    running = r.define(lid, "w", select(items, united, group=by, having=touched))
    _keep_sums(r, node, groups, rows, running)
    return running, name


def _rolled(
    r: StepState, node: lir.Reduce, groups: g.Groups, errors: bool, sums: str, name: str
) -> str:
    """For each update of a group's sums what it adds (c0 …), and the sums after it (w0 …)."""
    lid, k = node.lir_id, groups.arity
    keys: list[Ast] = [col(f"c{i}") for i in range(k)]
    own = [col(f"c{k + i}") for i in range(len(groups.sums))]
    error = [col(ERROR)] if errors else []
    state: list[Ast] = list(keys)
    state += [
        named(before, part.name) for before, part in zip(_state_sums(r, groups), own, strict=True)
    ]
    state += [named(no_error(r.engine), ERROR)] if errors else []
    both = union_all(
        [select([*state, col(TIME)], name), select([*keys, *own, *error, col(TIME)], sums)]
    )
    united = r.define(lid, "u", both)
    casts = [partial(s.cast, typ=typ.type, engine=r.engine) for typ in groups.sums]
    totals_up_to: list[Sum] = [
        (part, f"w{i}", cast) for i, (part, cast) in enumerate(zip(own, casts, strict=True))
    ]
    updates = list(zip(own, casts, strict=True))
    return r.define(lid, "w", rolled(r, united, [*keys, *error], updates, totals_up_to))


def _signed(r: StepState, node: lir.Reduce, groups: g.Groups, errors: bool, running: str) -> str:
    """At each time of a group the sums before it (diff -1) and after it (diff +1)."""
    lid, k = node.lir_id, groups.arity
    keys: list[Ast] = [col(f"c{i}") for i in range(k)]
    own = [col(f"c{k + i}") for i in range(len(groups.sums))]
    error = [col(ERROR)] if errors else []
    # Each row is doubled: with sign -1 it becomes the totals before its time, with sign 1 the totals after it.
    signs = s.array(big(-1, r.engine), big(1, r.engine))
    running_names: list[Ast] = [col(f"w{i}") for i in range(len(own))]
    twice = select(
        [*keys, *own, *running_names, *error, col(TIME), named(explode(signs, r.engine), SIGN)],
        running,
        where=[s.gte(col(TIME), big(r.lower, r.engine))],
    )
    after = s.eq(col(SIGN), s.num(1))
    totals: list[Ast] = []
    for i, (part, typ) in enumerate(zip(own, groups.sums, strict=True)):
        # The running total includes the updates at its own time; without them it is the total before.
        value = s.case((after, col(f"w{i}")), otherwise=s.sub(col(f"w{i}"), part))
        totals.append(named(s.cast(value, typ.type, r.engine), part.name))
    # The last sum counts the group's rows: a group without rows has no output row.
    exists = s.gt(
        s.case((after, col(f"w{len(own) - 1}")), otherwise=s.sub(col(f"w{len(own) - 1}"), own[-1])),
        s.num(0),
    )
    diff: Ast = col(SIGN)
    if errors:
        bad = s.is_not_null(col(ERROR))
        diff = s.case((bad, own[-1]), otherwise=col(SIGN))
        # An error row is not rolled up: it passes once, with its own diff.
        exists = s.or_(s.and_(bad, after), s.and_(s.not_(bad), exists))
    query = select(
        [*keys, *totals, *error, col(TIME), named(s.big(diff), DIFF)],
        subquery(twice, "x"),
        where=[exists],
    )
    return r.define(lid, "s", query)


def _state_from_sums(r: StepState, node: lir.Reduce, groups: g.Groups, name: str) -> str:
    """The groups' output rows below `lower`, from the partial sums."""
    k = groups.arity
    keys: list[Ast] = [col(f"c{i}") for i in range(k)]
    totals: list[Ast] = [
        named(
            s.cast(
                exp.Sum(this=s.cast(s.mul(col(f"c{k + i}"), col(DIFF)), t.type, r.engine)),
                t.type,
                r.engine,
            ),
            f"c{k + i}",
        )
        for i, t in enumerate(groups.sums)
    ]
    count = exp.Sum(this=s.mul(col(f"c{k + len(totals) - 1}"), col(DIFF)))
    items = [
        *keys,
        *totals,
        named(big(r.lower - 1, r.engine), TIME),
        named(big(1, r.engine), DIFF),
    ]
    query = select(items, name, group=keys, having=s.gt(count, s.num(0)))
    sums = Collection(r.define(node.lir_id, "d", query), (*groups.key, *groups.sums), errors=False)
    made = g.from_sums(r, node, groups, sums, "do", "dn")
    return _silent(r, node, made)


def _silent(r: StepState, node: lir.Reduce, made: Collection) -> str:
    """Good rows of the state; its errors were reported by the update that caused them."""
    if not made.errors:
        return made.relation
    return r.stripped(made, node.lir_id, "dg").relation


def _distinct_contributions(
    r: StepState,
    node: lir.Reduce,
    groups: g.Groups,
    rows: Collection,
    number: int,
    one: g.Aggregate,
) -> exp.Select:
    """What values that appear in a group or leave it add to the sums of a DISTINCT aggregate."""
    lid, k = node.lir_id, groups.arity
    good = rows.relation
    keys: list[Ast] = [col(f"c{i}") for i in range(k)]
    value = col(f"c{one.argument}")
    items: list[Ast] = [*keys, named(value, f"c{k}"), col(TIME)]
    where = [s.is_null(col(ERROR))] if rows.errors else []
    where += [s.is_not_null(value)] if one.func.ignores_nulls else []
    query = consolidated(good, [*keys, value, col(TIME)], shown=items, where=where)
    delta = r.define(lid, f"d{number}", query)
    columns = (*groups.key, one.argument_type)
    name = r.keep(node, f"d{number}", delta, columns, k)
    _need(r, name, groups, rows)
    everything = r.columns(k + 1, errors=False)
    full = r.define(
        lid, f"d{number}f", union_all([select(everything, name), select(list(everything), delta)])
    )
    mine = [*keys, col(f"c{k}")]
    cumulated = rolled(r, full, mine, [(col(DIFF), s.big)], [(col(DIFF), "mz_cum", s.big)])
    counted = r.define(lid, f"d{number}w", cumulated)

    def present(count: Ast) -> Ast:
        return s.case((s.gt(count, s.num(0)), big(1, r.engine)), otherwise=big(0, r.engine))

    # A value counts while its multiplicity is positive, so only the times at which that changes contribute.
    change = s.sub(present(col("mz_cum")), present(s.sub(col("mz_cum"), col(DIFF))))
    changed = select(
        [*mine, col(TIME), named(change, DIFF)],
        counted,
        where=[s.gte(col(TIME), big(r.lower, r.engine)), s.neq(change, s.num(0))],
    )
    source = r.define(lid, f"d{number}c", changed)
    sql = Sql(col(f"c{k}"), one.argument_type.type)
    own = g.summands_of(one, r.engine, sql, col(DIFF))
    parts: list[Ast] = [s.cast(s.num(0), t.type, r.engine) for t in groups.sums]
    parts[one.start : one.start + len(own)] = own
    made: list[Ast] = [*keys, *(named(p, f"s{i}") for i, p in enumerate(parts))]
    made += [named(no_error(r.engine), ERROR)] if rows.errors else []
    return select([*made, col(TIME)], source)


# --- first and last values beside partial sums -----------------------------------------------------


def _parted(
    r: StepState, node: lir.Reduce, parts: x.Parts, rows: Collection
) -> tuple[Collection, str, Callable[[], str]]:
    lid, groups = node.lir_id, parts.groups
    k, width = groups.arity, len(rows.columns)
    query = r.consolidated(rows.relation, width, errors=rows.errors)
    changes = replace(rows, relation=r.define(lid, "e", query))
    good = replace(rows, relation=r.good(changes, lid, "eg"), errors=False)
    names = [_values(r, node, parts, number, good) for number in range(len(parts.values))]
    sums = None if parts.sums is None else _partial_sums(r, node, parts.sums, good)[1]
    meta = [TIME, DIFF]

    def full(name: str, columns: int) -> str:
        items = r.columns(columns, errors=False)
        both = union_all([select(items, name), select(list(items), r.batches[name])])
        return r.define(lid, "f", both)

    values = [full(name, k + 1) for name in names]
    everything = None if sums is None else full(sums, len(parts.sum_columns))
    united = r.define(lid, "u", x.together(r, parts, values, everything, meta))
    times = grid(r, lid, good.relation, [col(f"c{i}") for i in range(k)])
    by, added = x.totals(r, parts, "a")
    on = _same_keys(groups.key)
    on.append(s.lte(col(TIME, "a"), col(TIME, "d")))
    meta_at: list[Ast] = [col(TIME, "d"), col(NEXT, "d")]
    items: list[Ast] = [named(one, one.name) for one in (*by, *meta_at)]
    query = join(times, united, on, [*items, *added], engine=r.engine)
    query.set("group", exp.Group(expressions=[one.copy() for one in (*by, *meta_at)]))
    query.set("having", exp.Having(this=x.there(parts, "a")))
    held = r.define(lid, "r", query)
    results = r.define(lid, "a", x.results(r, node, parts, held, [TIME, NEXT], "a"))
    errors = g.can_fail(groups)
    columns: list[Ast] = [col(f"c{i}") for i in range(len(groups.output))]
    columns += [col(ERROR)] if errors else []
    changed = Collection(
        r.define(lid, "s", toggled(r, results, columns, big(1, r.engine))),
        groups.output,
        errors,
        either(within(rows.trace, k)),
    )
    made = r.apply(lid, "", groups.after, changed)

    def derived() -> str:
        state = x.together(r, parts, names, sums, meta)
        rows = r.define(lid, "dr", x.added_up(r, parts, r.define(lid, "du", state)))
        found = r.define(lid, "da", x.results(r, node, parts, rows, [], "da"))
        return _at_lower(r, node, groups, found, groups.output, errors)

    every = names if sums is None else [sums, *names]
    r.lookups.beside(every[0], every[1:])
    return made, every[0], derived


def _values(r: StepState, node: lir.Reduce, parts: x.Parts, number: int, good: Collection) -> str:
    """The arrangement of the values of one argument."""
    delta = r.define(node.lir_id, f"h{number}", x.pairs(parts, number, good.relation, [TIME]))
    order, k = x.extreme_order(parts, number), parts.groups.arity
    name = r.keep(node, f"h{number}", delta, parts.columns(number), k, order=order)
    if order:
        r.lookups.bound(name, parts.values[number].fronts)
    _need(r, name, parts.groups, good)
    return name


def _same_keys(key: Sequence[ColumnType]) -> list[Ast]:
    return [
        same(col(f"c{i}", "d"), col(f"c{i}", "a"))
        if typ.nullable
        else s.eq(col(f"c{i}", "d"), col(f"c{i}", "a"))
        for i, typ in enumerate(key)
    ]


# --- reading a group's rows again ----------------------------------------------------------------


def grid(r: StepState, lid: int, delta: str, keys: list[Ast]) -> str:
    """The times at which each touched key's output may change, starting with ``lower - 1``, each with the next one."""
    if r.at_once:
        # Without keys an aggregate over no rows would still return a row.
        having = None if keys else s.gt(exp.Count(this=exp.Star()), s.num(0))
        touched = [*keys, named(exp.Max(this=col(TIME)), TIME)]
        once = r.define(lid, "ta", select(touched, delta, group=keys, having=having))
        first = [*keys, named(big(r.lower - 1, r.engine), TIME), named(s.big(col(TIME)), NEXT)]
        last = [*keys, col(TIME), named(s.big(s.null()), NEXT)]
        return r.define(lid, "t", union_all([select(first, once), select(last, once)]))
    # ``lower - 1`` stands for the state before the step, whose rows may have to be retracted.
    before = select([*keys, named(big(r.lower - 1, r.engine), TIME)], delta)
    times = union_all([select([*keys, col(TIME)], delta), before])
    every = select([*keys, col(TIME)], subquery(times, "t"), group=[*keys, col(TIME)])
    following = window(s.call("LEAD", col(TIME)), keys, [ordered(col(TIME))], rows=False)
    return r.define(
        lid, "t", select([*keys, col(TIME), named(following, NEXT)], subquery(every, "g"))
    )


def rows_at(
    r: StepState, lid: int, times: str, full: str, key: list[int], columns: list[ColumnType]
) -> str:
    """The keys' rows at each time of the grid, with their multiplicities at that time (as mz_diff)."""
    on = [
        same(col(f"c{i}", "d"), col(f"c{i}", "a"))
        if columns[i].nullable
        else s.eq(col(f"c{i}", "d"), col(f"c{i}", "a"))
        for i in key
    ]
    on.append(s.lte(col(TIME, "a"), col(TIME, "d")))
    row: list[Ast] = [col(f"c{i}", "a") for i in range(len(columns))]
    meta: list[Ast] = [col(TIME, "d"), col(NEXT, "d")]
    items: list[Ast] = [named(c, c.name) for c in row]
    items += [named(c, c.name) for c in meta]
    items.append(named(summed("a"), DIFF))
    query = join(times, full, on, items, engine=r.engine)
    query.set("group", exp.Group(expressions=[c.copy() for c in (*row, *meta)]))
    # A row whose diffs do not add up to a positive number is not there at that time.
    query.set("having", exp.Having(this=remaining("a", positive=True)))
    return r.define(lid, "r", query)


def toggled(r: StepState, relation: str, columns: list[Ast], multiplicity: Ast) -> exp.Select:
    """Turn rows that hold from a grid time to the next into updates: inserted at the one (unless it is before the
    step), retracted at the other.
    """
    signs = s.array(big(-1, r.engine), big(1, r.engine))
    twice = select(
        [
            *columns,
            col(TIME),
            col(NEXT),
            named(multiplicity, DIFF),
            named(explode(signs, r.engine), SIGN),
        ],
        relation,
    )
    inserted = s.eq(col(SIGN), s.num(1))
    time = s.case((inserted, col(TIME)), otherwise=col(NEXT))
    items = [*columns, named(time, TIME), named(s.mul(col(SIGN), col(DIFF)), DIFF)]
    held = s.or_(
        s.and_(inserted, s.gte(col(TIME), big(r.lower, r.engine))),
        s.and_(s.not_(inserted), s.is_not_null(col(NEXT))),
    )
    return select(items, subquery(twice, "x"), where=[held])


def _reread(
    r: StepState, node: lir.Reduce, groups: g.Groups, rows: Collection
) -> tuple[Collection, str, Callable[[], str]]:
    lid, k = node.lir_id, groups.arity
    width = len(rows.columns)
    query = r.consolidated(rows.relation, width, errors=rows.errors)
    changes = replace(rows, relation=r.define(lid, "c", query))
    delta = r.good(changes, lid, "cg")
    name = r.keep(node, "in", delta, rows.columns, k)
    _need(r, name, groups, rows)
    everything = r.columns(width, errors=False)
    full = r.define(
        lid, "u", union_all([select(everything, name), select(list(everything), delta)])
    )
    times = grid(r, lid, delta, [col(f"c{i}") for i in range(k)])
    held = rows_at(r, lid, times, full, list(range(k)), list(rows.columns))
    query, output, errors = _results(r, node, groups, held, [TIME, NEXT], "a")
    results = r.define(lid, "a", query)
    columns: list[Ast] = [col(f"c{i}") for i in range(len(output))]
    columns += [col(ERROR)] if errors else []
    moved = r.define(lid, "s", toggled(r, results, columns, big(1, r.engine)))
    if w.fused(node):
        # Most rows of a partition are unchanged, and their retraction and insertion cancel.
        moved = r.define(lid, "x", r.consolidated(moved, len(output), errors=errors))
    changed = Collection(
        moved,
        output,
        errors,
        either(within(rows.trace, k)),
    )
    made = r.apply(lid, "", groups.after, changed)

    def derived() -> str:
        return _state_from_rows(r, node, groups, name, width)

    return made, name, derived


def _results(
    r: StepState, node: lir.Reduce, groups: g.Groups, rows: str, by: list[str], suffix: str
) -> tuple[exp.Select, tuple[ColumnType, ...], bool]:
    """Key ++ aggregates of groups from their rows, or key ++ a window function's result; the types; and whether one can
    fail.
    """
    if w.window_of(node) is None:
        query = g.aggregated(r, node, groups, rows, by, suffix)
        return query, groups.output, g.can_fail(groups)
    return w.windowed(r, node, groups, rows, by, suffix), w.output(node, groups), w.can_fail(groups)


def _state_from_rows(
    r: StepState, node: lir.Reduce, groups: g.Groups, name: str, width: int
) -> str:
    """The groups' output rows below `lower`, from the kept rows."""
    keys: list[Ast] = [col(f"c{i}") for i in range(width)]
    rows = r.define(node.lir_id, "dr", consolidated(name, keys, positive=True))
    query, output, errors = _results(r, node, groups, rows, [], "da")
    results = r.define(node.lir_id, "da", query)
    return _at_lower(r, node, groups, results, output, errors)


def _at_lower(
    r: StepState,
    node: lir.Reduce,
    groups: g.Groups,
    results: str,
    output: tuple[ColumnType, ...],
    errors: bool,
) -> str:
    """The results of groups as the state below `lower`."""
    items: list[Ast] = [col(f"c{i}") for i in range(len(output))]
    items += [col(ERROR)] if errors else []
    items += [named(big(r.lower - 1, r.engine), TIME), named(big(1, r.engine), DIFF)]
    state = Collection(r.define(node.lir_id, "ds", select(items, results)), output, errors)
    return _silent(r, node, r.apply(node.lir_id, "dn", groups.after, state))


#: The nodes that this module renders.
NODES: Nodes = {lir.Reduce: reduce}
