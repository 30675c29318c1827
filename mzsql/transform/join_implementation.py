"""JoinImplementation: gives every join its plan: differential or delta, in which order, by which keys.

Promise: a planned join's inputs are under ArrangeBys by the keys that the plan looks up. Two inputs always make a
differential join. More make a delta join if that needs no more new arrangements than a differential one (without
eager delta joins: if it needs none). A lookup key may fail to evaluate; then an arrangement has that error, once,
whichever row the value would have met. A delta join's paths have no arrangement of several inputs combined, so if
such an equality can fail the join is differential. An index is used through filters, maps and projections that keep
its key; these then move above the join.
Source: Materialize's transform `JoinImplementation`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.mfp import MapFilterProject, extract_mfp
from mzsql.expr.typing import relation_type
from mzsql.transform.cardinality import Estimate, cardinality
from mzsql.transform.context import OptimizerContext
from mzsql.transform.fusion import merge_classes
from mzsql.transform.join_order import (
    JoinGraph,
    JoinInput,
    Key,
    LinearOrder,
    Step,
    linear_arrangements,
    linear_order,
    new_arrangements,
)
from mzsql.transform.join_predicates import implied
from mzsql.transform.predicate_pushdown import filters_over_input
from mzsql.transform.predicates import FilterCharacteristics, filter_characteristics
from mzsql.transform.scalars import may_error
from mzsql.transform.visit import filtered, mapped, project, rebuilt


def join_implementation(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Plan every join that has no plan yet."""
    return _Planner(ctx).visit(rel, {})


class _Planner:
    def __init__(self, ctx: OptimizerContext) -> None:
        self._ctx = ctx
        self._lookups: set[int] = set()  # bindings that are lookups in an index
        self._estimates: dict[int, Estimate] = {}  # of bindings, where estimates count

    def _estimate(self, rel: mir.Relation) -> Estimate:
        """The estimated number of rows of a relation, if estimates are used."""
        if not self._ctx.features.enable_cardinality_estimates:
            return None
        return cardinality(rel, self._ctx.statistics, self._estimates, {})

    def _is_lookup(self, rel: mir.Relation) -> bool:
        _, below = extract_mfp(rel)
        match below:
            case mir.Join(implementation=mir.IndexedFilter()):
                return True
            case mir.Get(id=gid):
                return gid in self._lookups
            case _:
                return False

    def visit(
        self,
        rel: mir.Relation,
        arranged: Mapping[int, tuple[Key, ...]],
        above: Sequence[sc.Scalar] = (),
    ) -> mir.Relation:
        """Plan bottom-up; `arranged` are the keys by which bindings are arranged, `above` the filters on a join."""
        if isinstance(rel, mir.Let):
            value = self.visit(rel.value, arranged)
            inner = {**arranged, rel.id: self._arrangements(value, arranged)}
            if self._is_lookup(value):
                self._lookups.add(rel.id)
            self._estimates[rel.id] = self._estimate(value)
            return mir.Let(rel.id, value, self.visit(rel.body, inner))
        if isinstance(rel, mir.Map | mir.Filter | mir.Project):
            mfp, below = extract_mfp(rel)
            filters = filters_over_input(mfp) if isinstance(below, mir.Join) else ()
            return rebuilt(rel, below, self.visit(below, arranged, filters))
        kids = mir.inputs(rel)
        new = [self.visit(kid, arranged) for kid in kids]
        if any(a is not b for a, b in zip(kids, new, strict=True)):
            rel = mir.with_inputs(rel, new)
        if isinstance(rel, mir.Join) and isinstance(rel.implementation, mir.Unplanned):
            return self._plan(rel, arranged, above)
        return rel

    def _arrangements(
        self, rel: mir.Relation, arranged: Mapping[int, tuple[Key, ...]]
    ) -> tuple[Key, ...]:
        """The keys by which a relation's own operator arranges it."""
        match rel:
            case mir.Get(id=gid):
                if isinstance(gid, int):
                    return arranged.get(gid, ())
                return tuple(index.key for index in self._ctx.indexes(gid))
            case mir.ArrangeBy(keys=keys, input=inner):
                return (*keys, *self._arrangements(inner, arranged))
            case mir.Reduce(group_key=group):
                return (tuple(sc.Column(i) for i in range(len(group))),)
            case mir.Join(implementation=mir.IndexedFilter(coll=coll)):
                # These are a few rows of the collection; arranging them costs nothing that matters if the collection
                # is indexed by the same key.
                return tuple(index.key for index in self._ctx.indexes(coll))
            case mir.Threshold(input=inner):
                return (tuple(sc.Column(i) for i in range(mir.arity(inner))),)
            case _:
                return ()

    def _plan(
        self,
        rel: mir.Join,
        arranged: Mapping[int, tuple[Key, ...]],
        above: Sequence[sc.Scalar],
    ) -> mir.Relation:
        parts = [self._input(part, arranged) for part in rel.inputs]
        owner = [i for i, part in enumerate(parts) for _ in range(part.facts.arity)]
        for home, pred in (found for said in above for found in implied(said, owner)):
            # As in Materialize, the implied predicate counts in addition to the filter that was made from it.
            parts[home] = parts[home].filtered(filter_characteristics([pred]))
        first = self._ctx.features.enable_join_prioritize_arranged
        facts = [part.facts for part in parts]
        graph = JoinGraph(facts, rel.equivalences, arranged_first=first)
        linear = linear_order(graph)
        paths = [graph.order_from(start) for start in range(len(parts))]
        if self._prefers_delta(graph, linear, paths):
            orders = tuple(tuple(_step(step) for step in path) for path in paths)
            plan: mir.Implementation = mir.DeltaQuery(orders)
            used = [step for path in paths for step in path]
        else:
            plan = mir.Differential(
                linear.start.relation,
                linear.start.key,
                linear.start.score.code(),
                tuple(_step(step) for step in linear.steps),
            )
            used = [linear.start, *linear.steps]
        keys: list[set[Key]] = [set() for _ in parts]
        for step in used:
            keys[step.relation].add(step.key)
        # Sorted, because a set's order differs from process to process, and the plan must not.
        return _implement(rel, parts, [sorted(k, key=repr_key) for k in keys], plan)

    def _prefers_delta(
        self, graph: JoinGraph, linear: LinearOrder, paths: list[tuple[Step, ...]]
    ) -> bool:
        # Of two inputs a linear join keeps no stream either, so there is nothing to save.
        if len(graph.inputs) <= 2 or _loses_errors(graph, paths):
            return False
        new = new_arrangements(graph, paths)
        if new == 0:
            return True
        # Else it costs memory for arrangements, as a linear join does for its streams; as in Materialize only a
        # feature flag weighs these.
        eager = self._ctx.features.enable_eager_delta_joins
        return eager and new <= linear_arrangements(graph, linear)

    def _input(self, part: mir.Relation, arranged: Mapping[int, tuple[Key, ...]]) -> _Part:
        """What is known of an input: directly, or through the MFP on it."""
        mfp, below = extract_mfp(part)
        inner = self._arrangements(below, arranged)
        place: dict[int, int] = {}
        for position, column in enumerate(mfp.projection):
            place.setdefault(column, position)
        available: dict[Key, Key] = {}
        for key in inner:
            if all(c in place for expr in key for c in sc.support(expr)):
                available[tuple(sc.permute(expr, place) for expr in key)] = key
        filters = filter_characteristics(pred for _, pred in mfp.predicates)
        if self._is_lookup(below):
            filters |= FilterCharacteristics(literal_equality=True)
        typ = relation_type(part)
        rows = self._estimate(part)
        facts = JoinInput(
            arity=typ.arity,
            unique_keys=typ.keys,
            arrangements=tuple(available),
            filters=filters,
            cardinality=None if rows is None else math.ceil(rows),
        )
        return _Part(part, facts, mfp, below, available)


def _loses_errors(graph: JoinGraph, paths: Sequence[Sequence[Step]]) -> bool:
    """Whether an equality that can fail would, on some path, be evaluated on rows of several inputs, and so not on the
    same rows on all paths.
    """
    failing = [members for members in graph.members if any(may_error(expr) for expr, _ in members)]
    if any(len(homes) != 1 for members in failing for _, homes in members):
        return True
    for start, path in enumerate(paths):
        placed = {start}
        for step in path if failing else ():
            for members in failing:
                own = [expr for expr, homes in members if step.relation in homes]
                if any(homes <= placed for _, homes in members) and not all(
                    graph.to_local(step.relation, expr) in step.key for expr in own
                ):
                    return True
            placed.add(step.relation)
    return False


@dataclass(frozen=True)
class _Part:
    """A join's input, and what is below its row-wise operators."""

    relation: mir.Relation
    facts: JoinInput
    mfp: MapFilterProject
    below: mir.Relation
    available: dict[Key, Key]  # key over the input's columns: the same over the columns of `below`

    def filtered(self, more: FilterCharacteristics) -> _Part:
        """The same input with further filters known of it."""
        return replace(self, facts=replace(self.facts, filters=self.facts.filters | more))

    def can_lift(self, keys: list[Key]) -> bool:
        """Whether all keys are arranged below the row-wise operators."""
        return bool(keys) and all(key in self.available for key in keys)


def repr_key(key: Key) -> tuple[tuple[int, int, str], ...]:
    """A total order of keys."""
    return tuple(
        (0, expr.index, "") if isinstance(expr, sc.Column) else (1, 0, repr(expr)) for expr in key
    )


def _step(step: Step) -> mir.JoinInputOrder:
    return mir.JoinInputOrder(step.relation, step.key, step.score.code())


def _implement(
    rel: mir.Join, parts: list[_Part], keys: list[list[Key]], plan: mir.Implementation
) -> mir.Relation:
    """The join over its arranged inputs, with lifted row-wise operators on top."""
    inputs: list[mir.Relation] = []
    place: dict[int, int] = {}  # old column of the join: new one
    scalars: list[sc.Scalar] = []
    predicates: list[sc.Scalar] = []
    lifted: list[tuple[_Part, int, int]] = []
    new_keys: list[dict[Key, Key]] = []
    old_start = new_start = 0
    for part, wanted in zip(parts, keys, strict=True):
        # Row-wise operators on an arranged input go above the join: so the arrangement below them is used as it is, not made anew.
        lift = part.can_lift(wanted) and not part.mfp.is_identity
        base = part.below if lift else part.relation
        mapping = {key: part.available[key] if lift else key for key in wanted}
        new_keys.append(mapping)
        inputs.append(_arranged(base, [mapping[key] for key in wanted]))
        if lift:
            lifted.append((part, old_start, new_start))
        else:
            for column in range(part.facts.arity):
                place[old_start + column] = new_start + column
        old_start += part.facts.arity
        new_start += mir.arity(base)
    total = new_start
    for part, old, new in lifted:
        moved = {c: new + c for c in range(part.mfp.input_arity)}
        for offset, expr in enumerate(part.mfp.expressions):
            moved[part.mfp.input_arity + offset] = total + len(scalars)
            scalars.append(sc.permute(expr, moved))
        predicates.extend(sc.permute(pred, moved) for _, pred in part.mfp.predicates)
        for position, column in enumerate(part.mfp.projection):
            place[old + position] = moved[column]
    classes = tuple(
        tuple(_rebased(expr, place, scalars, total) for expr in cls) for cls in rel.equivalences
    )
    # Columns that were separate above a projection may be one column below it.
    members = [expr for cls in classes for expr in cls]
    if len(set(members)) < len(members):
        classes = merge_classes(classes)
    planned = mir.Join(tuple(inputs), classes, _renamed(plan, new_keys))
    # What needs no computed column goes first, so that less is computed.
    early = [p for p in predicates if all(c < total for c in sc.support(p))]
    late = [p for p in predicates if p not in early]
    result = filtered(mapped(filtered(planned, early), scalars), late)
    return project(result, [place[column] for column in range(old_start)])


def _rebased(
    expr: sc.Scalar, place: Mapping[int, int], scalars: list[sc.Scalar], total: int
) -> sc.Scalar:
    """A member of an equivalence over the planned join's columns, with lifted maps substituted."""
    moved = sc.permute(expr, place)
    while any(column >= total for column in sc.support(moved)):
        columns: list[sc.Scalar] = [sc.Column(c) for c in range(total)]
        columns.extend(scalars)
        moved = sc.substitute(moved, columns)
    return moved


def _arranged(rel: mir.Relation, keys: list[Key]) -> mir.Relation:
    if isinstance(rel, mir.ArrangeBy):
        return mir.ArrangeBy(rel.input, tuple(dict.fromkeys((*rel.keys, *keys))))
    return mir.ArrangeBy(rel, tuple(keys)) if keys else rel


def _renamed(plan: mir.Implementation, keys: list[dict[Key, Key]]) -> mir.Implementation:
    """The plan with each input's keys over the relation that the input now is."""

    def step(order: mir.JoinInputOrder) -> mir.JoinInputOrder:
        return msgspec.structs.replace(order, key=keys[order.input][order.key])

    match plan:
        case mir.Differential(start=start, start_key=key, order=order):
            new = None if key is None else keys[start][key]
            return msgspec.structs.replace(plan, start_key=new, order=tuple(step(o) for o in order))
        case mir.DeltaQuery(orders=orders):
            return mir.DeltaQuery(tuple(tuple(step(o) for o in path) for path in orders))
        case _:
            return plan
