"""Joins of contents at one time.

Promise: the rows are those of a step's join, without times; keys compare null-safe, as join equivalences require. An
arrangement that no lookup needs is made all the same if a hydration keeps it, or if its key can fail.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr import spell
from mzsql.expr.functions import sql as s
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import support
from mzsql.lir import plan as lir
from mzsql.lir.forms import arrangement_form
from mzsql.render.contents.state import ContentsState
from mzsql.render.nodes.collection import Arranged, Collection
from mzsql.render.nodes.paths import Layout, Probe, demand, trace_path
from mzsql.render.nodes.rows import can_fail, mapped, may_fail, no_failure, output_types
from mzsql.render.statement import DIFF, Ast, col, columns_of, join, named, same, select


def delta_join(
    r: ContentsState, node: lir.Join, plan: lir.DeltaJoin, inputs: list[Collection]
) -> Collection:
    """One path of a delta join: at a single time every path has the same rows."""
    probes = [
        (stage.lookup_relation, stage.lookup_key)
        for number, path in enumerate(plan.paths)
        for stage in path.stages
        # Other paths' arrangements are only needed for the errors of their keys.
        if r.hydrating or not number or _key_fails(stage, inputs)
    ]
    arranged: dict[Probe, Arranged] = {
        probe: inputs[probe[0]].arranged[probe[1]]() for probe in dict.fromkeys(probes)
    }
    layout = Layout.of(inputs)
    path = plan.paths[0]
    source = inputs[path.source_relation]
    forms = {p: arrangement_form(p[1], len(inputs[p[0]].columns)) for p in arranged}
    traced = trace_path(path, layout, forms, arrangement_form(path.source_key, len(source.columns)))
    needed = set(demand(traced.closure))
    for _, key in traced.lookups:
        needed |= frozenset[int]().union(*(support(e) for e in key))
    for expr in traced.early:
        needed |= support(expr)
    own = layout.columns(path.source_relation)
    bound = frozenset(own) & needed
    items: list[Ast] = [named(col(f"c{x - own.start}"), f"c{x}") for x in sorted(bound)]
    relation = r.define(node.lir_id, "p", select([*items, col(DIFF)], source.relation))
    args = columns_of(layout.types, "d")
    for number, (probe, key) in enumerate(traced.lookups):
        one = arranged[probe]
        theirs = layout.columns(probe[0])
        new = frozenset(theirs) & needed
        on = [
            same(spell.value(e, args, r.engine), col(f"c{i}", "a"))
            if one.columns[i].nullable
            else s.eq(spell.value(e, args, r.engine), col(f"c{i}", "a"))
            for i, e in enumerate(key)
        ]
        on += no_failure(key, args, r.engine)
        items = [named(col(f"c{x}", "d"), f"c{x}") for x in sorted(bound)]
        items += [
            named(col(f"c{one.permutation[x - theirs.start]}", "a"), f"c{x}") for x in sorted(new)
        ]
        items.append(_product())
        query = join(relation, one.full, on, items, engine=r.engine, broadcast=None)
        relation = r.define(node.lir_id, f"j{number}", query)
        bound |= new
    joined, closure = relation, traced.closure
    name = r.define(
        node.lir_id,
        "",
        lambda: mapped(closure, layout.types, joined, r.engine, carry=r.meta)[0],
    )
    errors = can_fail(closure, layout.types)
    return Collection(name, output_types(closure, layout.types), errors)


def _key_fails(stage: lir.LinearStage, inputs: Sequence[Collection]) -> bool:
    columns = inputs[stage.lookup_relation].columns
    return any(may_fail(expr, columns) for expr in stage.lookup_key)


def linear_join(
    r: ContentsState, node: lir.Join, plan: lir.LinearJoin, inputs: list[Collection]
) -> Collection:
    """The stages of a linear join; each stream is arranged."""
    stream = inputs[plan.source_relation]
    for number, stage in enumerate(plan.stages):
        theirs = inputs[stage.lookup_relation].arranged[stage.lookup_key]()
        ours = _stream(r, node, plan, number, stream)
        keys, width = len(ours.key), len(ours.columns)
        on = [
            same(col(f"c{i}", "d"), col(f"c{i}", "a"))
            if ours.columns[i].nullable and theirs.columns[i].nullable
            else s.eq(col(f"c{i}", "d"), col(f"c{i}", "a"))
            for i in range(keys)
        ]
        items: list[Ast] = [named(col(f"c{i}", "d"), f"c{i}") for i in range(width)]
        added = len(theirs.columns) - keys
        items += [named(col(f"c{keys + i}", "a"), f"c{width + i}") for i in range(added)]
        items.append(_product())
        query = join(ours.full, theirs.full, on, items, engine=r.engine, broadcast=None)
        found = Collection(
            r.define(node.lir_id, f"j{number}", query),
            (*ours.columns, *theirs.columns[keys:]),
            errors=False,
        )
        stream = r.apply(node.lir_id, f"t{number}", stage.closure, found)
    closure = plan.final_closure or MapFilterProject.identity(len(stream.columns))
    return r.apply(node.lir_id, "", closure, stream)


def _stream(
    r: ContentsState, node: lir.Join, plan: lir.LinearJoin, number: int, stream: Collection
) -> Arranged:
    stage = plan.stages[number]
    if number == 0 and plan.source_key == stage.stream_key and stage.stream_key in stream.arranged:
        return stream.arranged[stage.stream_key]()
    form = arrangement_form(stage.stream_key, len(stream.columns))
    if stream.errors:
        r.divert(stream.relation)
    return r.arranged(node, f"s{number}", form, stream)


def _product() -> exp.Alias:
    return named(s.mul(col(DIFF, "d"), col(DIFF, "a")), DIFF)
