"""Monotonic flags: marks the Reduces and TopKs whose input is never retracted.

Promise: a flag is set only if no retraction can reach the node, given which sources never retract.
Source: Materialize's transform `MonotonicFlag`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.dataflow import MirDataflow
from mzsql.repr.ids import GlobalId


def annotate_monotonic(df: MirDataflow) -> MirDataflow:
    """Flag the Reduces and TopKs of all objects."""
    known: set[GlobalId] = {source.id for source in df.source_imports if source.monotonic}
    objects = []
    for obj in df.objects:
        plan, grows = _visit(obj.plan, known, {})
        if grows:
            known.add(obj.id)
        objects.append(msgspec.structs.replace(obj, plan=plan))
    return msgspec.structs.replace(df, objects=tuple(objects))


def _visit(
    rel: mir.Relation, known: Collection[GlobalId], locals_: Mapping[int, bool]
) -> tuple[mir.Relation, bool]:
    """The relation with flags, and whether it only grows."""
    match rel:
        case mir.Let(id=local, value=value, body=body):
            new_value, grows = _visit(value, known, locals_)
            new_body, body_grows = _visit(body, known, {**locals_, local: grows})
            return mir.Let(local, new_value, new_body), body_grows
        case mir.LetRec():
            inside = {**locals_, **recursive_growth(rel, known, locals_)}
            parts = [_visit(part, known, inside) for part in mir.inputs(rel)]
            return mir.with_inputs(rel, [part for part, _ in parts]), parts[-1][1]
        case mir.Get(id=gid):
            return rel, locals_.get(gid, False) if isinstance(gid, int) else gid in known
        case mir.Constant(rows=rows):
            return rel, all(diff > 0 for _, diff in rows)
    parts = [_visit(part, known, locals_) for part in mir.inputs(rel)]
    new = mir.with_inputs(rel, [part for part, _ in parts])
    grows = all(flag for _, flag in parts)
    match new:
        case mir.Reduce():
            # The rows of aggregates are replaced as input rows are added; those of a distinct only grow.
            new = msgspec.structs.replace(new, monotonic=grows)
            return new, grows and not new.aggregates
        case mir.TopK():
            return msgspec.structs.replace(new, monotonic=grows), False
        case mir.Negate():
            return new, False
        case mir.Filter(predicates=predicates):
            return new, grows and not any(_reads_time(p) for p in predicates)
        case _:
            return new, grows


def _reads_time(pred: sc.Scalar) -> bool:
    """Whether a predicate can stop being true as time passes."""
    return any(isinstance(node, sc.Unmaterializable) for node in sc.walk(pred))


def is_monotonic(
    rel: mir.Relation, known: Collection[GlobalId], locals_: Mapping[int, bool]
) -> bool:
    """Whether a relation only grows, if the objects `known` do; `locals_` says the same of its bindings."""
    return _visit(rel, known, locals_)[1]


def recursive_growth(
    rel: mir.LetRec, known: Collection[GlobalId], locals_: Mapping[int, bool]
) -> dict[int, bool]:
    """Which bindings of a recursion only grow: all are assumed to, since they start empty, until one does not follow
    from the others.
    """
    claimed = dict.fromkeys(rel.ids, True)
    while True:
        derived = {
            local: claimed[local] and is_monotonic(value, known, {**locals_, **claimed})
            for local, value in zip(rel.ids, rel.values, strict=True)
        }
        if derived == claimed:
            return claimed
        claimed = derived
