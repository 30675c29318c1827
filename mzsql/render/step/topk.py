"""TopK and Threshold in a step.

Promise: multiplicities count: a row with multiplicity three takes three places. Ties are broken by the whole row,
ascending, NULLs last, so the result is a function of the input. At each time of a touched group its first rows are
determined anew, among those of its rows that can be among the first (`mzsql.render.rendered.Front`). In process, where
all updates have one time, the first rows before and after it are found by one sort.
"""

from __future__ import annotations

from dataclasses import replace

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine
from mzsql.expr.scalar import Column, ColumnOrder, Scalar, permute
from mzsql.lir import plan as lir
from mzsql.render.nodes.collection import Arranged, Collection, Sources, either, relation_trace
from mzsql.render.nodes.fronts import front_of, order_of
from mzsql.render.nodes.topk import can_refuse, moved_places, places, refusals
from mzsql.render.statement import (
    DIFF,
    ERROR,
    TIME,
    Ast,
    big,
    col,
    named,
    select,
    union_all,
)
from mzsql.render.step.reduce import NEXT, grid, rows_at, toggled
from mzsql.render.step.rolled import rolled
from mzsql.render.step.state import Nodes, StepState
from mzsql.render.updates import consolidated
from mzsql.repr.types import ColumnType


def top_k(r: StepState, node: lir.TopK) -> Collection:
    """Render a TopK's updates."""
    below = r.render(node.input)
    lid, plan, width = node.lir_id, node.plan, len(below.columns)
    # Kept with the group's columns first, because lookups go by the leading columns.
    order = (*plan.group_key, *(c for c in range(width) if c not in plan.group_key))
    query = r.consolidated(below.relation, width, errors=below.errors)
    changes = replace(below, relation=r.define(lid, "c", query))
    good = r.good(changes, lid, "cg")
    items: list[Ast] = [named(col(f"c{c}"), f"c{i}") for i, c in enumerate(order)]
    delta = r.define(lid, "i", select([*items, col(TIME), col(DIFF)], good))
    columns = tuple(below.columns[c] for c in order)
    back = {c: i for i, c in enumerate(order)}
    wanted = [ColumnOrder(back[o.column], o.desc, o.nulls_last) for o in plan.order_key]
    # Then by all columns: which of the rows that the order leaves equal come first must be the same in each step, or a row would be
    # taken back that was never put out.
    wanted += [ColumnOrder(back[c]) for c in range(width)]
    sorted_by = order_of(wanted, columns, len(plan.group_key))
    name = r.keep(node, "in", delta, columns, len(plan.group_key), order=sorted_by)
    if sorted_by:
        r.lookups.bound(name, front_of(plan))
    r.need(name, tuple(Column(c) for c in plan.group_key), below)
    everything = r.columns(width, errors=False)
    full = r.define(
        lid, "u", union_all([select(everything, name), select(list(everything), delta)])
    )
    items = [named(col(f"c{back[c]}"), f"c{c}") for c in range(width)]
    if r.at_once and r.engine is Engine.DUCKDB and not can_refuse(plan):
        made = _moved(r, node, full, items, below.columns)
    else:
        made = _retaken(r, node, delta, full, items, below.columns)
    kept = relation_trace(name, columns)

    def from_state(exprs: tuple[Scalar, ...]) -> Sources:
        return kept(tuple(permute(e, back) for e in exprs))

    return Collection(made, below.columns, errors=False, trace=either(below.trace, from_state))


def _moved(
    r: StepState, node: lir.TopK, full: str, items: list[Ast], columns: tuple[ColumnType, ...]
) -> str:
    """The updates where all changes have one time. Not on Spark, where the state may have many groups that nothing
    touches.
    """
    lid = node.lir_id
    restored = r.define(lid, "h", select([*items, col(TIME), col(DIFF)], full))
    return r.define(lid, "", moved_places(r, node.plan, restored, columns, r.lower))


def _retaken(
    r: StepState,
    node: lir.TopK,
    delta: str,
    full: str,
    items: list[Ast],
    columns: tuple[ColumnType, ...],
) -> str:
    """The updates: at each time of a touched group its rows before are retracted, and those after inserted."""
    lid, plan, width = node.lir_id, node.plan, len(columns)
    keys = list(range(len(plan.group_key)))
    order = (*plan.group_key, *(c for c in range(width) if c not in plan.group_key))
    times = grid(r, lid, delta, [col(f"c{i}") for i in keys])
    held = rows_at(r, lid, times, full, keys, [columns[c] for c in order])
    restored = r.define(lid, "h", select([*items, col(TIME), col(NEXT), col(DIFF)], held))
    refused = refusals(r, plan, restored, columns, [TIME, NEXT])
    if refused is not None:
        failing = r.define(lid, "l", refused)
        r.divert(r.define(lid, "e", toggled(r, failing, [col(ERROR)], col(DIFF))))
    first = r.define(lid, "k", places(r, plan, restored, columns, [TIME, NEXT]))
    row: list[Ast] = [col(f"c{i}") for i in range(width)]
    changed = r.define(lid, "s", toggled(r, first, row, col(DIFF)))
    return r.define(lid, "", r.consolidated(changed, width, errors=False))


def threshold(r: StepState, node: lir.Threshold) -> Collection:
    """Render a Threshold's updates, arranged like its input."""
    below = r.render(node.input)
    lid, form = node.lir_id, node.ensure_arrangement
    ours = below.arranged[form.key]()
    good = r.good(below, lid, "i")
    width = len(below.columns)
    arranged: list[Ast] = [col(f"c{i}") for i in range(len(ours.columns))]
    delta = r.define(lid, "c", r.consolidated(ours.delta, len(ours.columns), errors=False))
    del good
    r.need(ours.name, form.key, below)
    state = union_all(
        [
            select([*arranged, col(TIME), col(DIFF)], ours.name or ours.full),
            select([*arranged, col(TIME), col(DIFF)], delta),
        ]
    )
    united = r.define(lid, "u", state)
    total = rolled(r, united, arranged, [(col(DIFF), s.big)], [(col(DIFF), "mz_cum", s.big)])
    counted = r.define(lid, "w", total)

    def positive(count: Ast) -> Ast:
        return s.call("GREATEST", count, big(0, r.engine))

    # A row is output with its multiplicity if that is positive, so the difference of the two maxima with 0 is the
    # change.
    change = s.sub(positive(col("mz_cum")), positive(s.sub(col("mz_cum"), col(DIFF))))
    changed = r.define(
        lid,
        "s",
        select(
            [*arranged, col(TIME), named(s.big(change), DIFF)],
            counted,
            where=[s.gte(col(TIME), big(r.lower, r.engine)), s.neq(change, s.num(0))],
        ),
    )
    items: list[Ast] = [named(col(f"c{at}"), f"c{i}") for i, at in enumerate(form.permutation)]
    raw = r.define(lid, "", select([*items, col(TIME), col(DIFF)], changed))
    made = Collection(raw, below.columns, errors=False, trace=below.trace)

    def found() -> Arranged:
        held = _held(r, lid, ours, len(ours.columns))
        full = r.full(r.name(lid, "f"), held, changed, len(ours.columns))
        return replace(ours, full=full, delta=changed, state=held)

    made.arranged[form.key] = r.once(found)
    assert width == len(arranged), "a Threshold's arrangement has all columns as its key"
    return made


def _held(r: StepState, lid: int, ours: Arranged, width: int) -> str:
    """The rows below `lower` with positive multiplicity."""
    row: list[Ast] = [col(f"c{i}") for i in range(width)]
    shown = [*row, named(big(r.lower - 1, r.engine), TIME)]
    query = consolidated(ours.name or ours.full, row, shown=shown, positive=True)
    return r.define(lid, "d", query)


#: The nodes that this module renders.
NODES: Nodes = {lir.TopK: top_k, lir.Threshold: threshold}
