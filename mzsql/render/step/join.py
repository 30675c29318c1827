"""Joins in a step.

Promise: an update meets the other inputs' state and updates under the time conditions of `mzsql.render.step.step`. If all
updates have one time these need no comparison: what meets only earlier rows is joined with the state alone. Keys
compare null-safe, as join equivalences require. The streamed side is broadcast, because it is as small as the
change. Every lookup in an arrangement is declared as it is made.
Source: Materialize's delta joins ("Delta joins and late materialization" on its blog); McSherry et al., "Shared
Arrangements: practical inter-query sharing for streaming dataflows", VLDB 2020.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sqlglot import expressions as exp

from mzsql.expr import spell
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Sql
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import Scalar, permute, substitute, support
from mzsql.lir import plan as lir
from mzsql.lir.forms import arrangement_form
from mzsql.render.nodes.collection import (
    EVERYTHING,
    Arranged,
    Collection,
    Sources,
    Trace,
    driven,
    either,
    prefix,
    through_mfp,
    unknown,
)
from mzsql.render.nodes.naming import arranged_row
from mzsql.render.nodes.paths import Equal, Layout, PathPlan, Probe, demand, schedule, trace_path
from mzsql.render.nodes.rows import mapped, no_failure, output_types
from mzsql.render.statement import (
    DIFF,
    TIME,
    Ast,
    big,
    col,
    columns_of,
    join,
    named,
    null_of,
    same,
    select,
    union_all,
)
from mzsql.render.step.state import NEW, Nodes, StepState
from mzsql.repr.types import ColumnType

PATH = "mz_path"
EARLIER = "mz_earlier"


def product() -> Ast:
    """The multiplicity of a pair of rows."""
    return s.mul(col(DIFF, "d"), col(DIFF, "a"))


def matches(left: Ast, right: Ast, types: tuple[ColumnType, ColumnType]) -> Ast:
    """Null-safe equality of key columns; plain equality if one side is never NULL."""
    if all(t.nullable for t in types):
        return same(left, right)
    return s.eq(left, right)


# --- delta joins ---------------------------------------------------------------------------------


@dataclass
class _Part:
    """The state of a path: the relation of its rows, the global columns bound so far, and the paths whose rows are in
    that relation.
    """

    relation: str
    bound: frozenset[int]
    paths: frozenset[int]


class _DeltaJoin:
    """A delta join while it is rendered."""

    def __init__(self, renderer: StepState, node: lir.Join, plan: lir.DeltaJoin) -> None:
        self.r = renderer
        self.node = node
        self.inputs = [renderer.render(below) for below in node.inputs]
        self.goods = [renderer.good(one, node.lir_id, f"i{i}") for i, one in enumerate(self.inputs)]
        self.layout = Layout.of(self.inputs)
        self.arranged: dict[Probe, Arranged] = {}
        for path in plan.paths:
            for stage in path.stages:
                probe = (stage.lookup_relation, stage.lookup_key)
                if probe not in self.arranged:
                    self.arranged[probe] = self.inputs[probe[0]].arranged[probe[1]]()
        forms = {
            p: lir.ArrangementForm(a.key, a.permutation, a.thinning)
            for p, a in self.arranged.items()
        }
        self.paths = [
            trace_path(
                path,
                self.layout,
                forms,
                arrangement_form(path.source_key, len(self.inputs[path.source_relation].columns)),
            )
            for path in plan.paths
        ]
        # All paths compute the same from the same rows, each in an order of its own; the first one's is applied to
        # the rows of all.
        self.closure = self.paths[0].closure
        needed = set(demand(self.closure))
        for traced in self.paths:
            for expr in traced.early:
                needed |= support(expr)
            for _, key in traced.lookups:
                needed |= frozenset[int]().union(*(support(e) for e in key))
        self.needed = frozenset(needed)
        #: by path: those of its predicates that are not applied yet
        self.left = {path.source: list(path.early) for path in self.paths}
        #: traces of the rows at the end of each path
        self.ends: list[Trace] = []

    def run(self) -> Collection:
        """Render the join; return its output."""
        self._declare()
        parts = {path.source: self._start(path) for path in self.paths}
        done: dict[int, int] = dict.fromkeys(parts, 0)
        for number, (probe, together) in enumerate(schedule(self.paths)):
            made = self._probe(number, probe, together, parts, done)
            new = frozenset(self.layout.columns(probe[0])) & self.needed
            for path in together:
                parts[path] = _Part(made, parts[path].bound | new, frozenset(together))
                done[path] += 1
        whole = self.r.define(self.node.lir_id, "p", union_all(self._ends(parts)))
        carry = self.r.meta
        query, errors = mapped(self.closure, self.layout.types, whole, self.r.engine, carry=carry)
        name = self.r.define(self.node.lir_id, "", query)
        columns = output_types(self.closure, self.layout.types)
        return Collection(name, columns, errors, through_mfp(self._trace, self.closure))

    def _ends(self, parts: dict[int, _Part]) -> list[exp.Expression]:
        items: list[Ast] = [col(f"c{g}") for g in sorted(demand(self.closure))]
        items += [col(TIME), col(DIFF)]
        alike: dict[tuple[str, tuple[Scalar, ...]], list[int]] = {}
        for path, part in parts.items():
            # A predicate that the first path has too is in the closure, which is applied after all paths.
            own = tuple(e for e in self.left[path] if e not in self.paths[0].early)
            alike.setdefault((part.relation, own), []).append(path)
        ends: list[exp.Expression] = []
        for (relation, left), finished in alike.items():
            where = [*self._only(parts[finished[0]], finished), *self._spelled(left)]
            ends.append(select(list(items), relation, where=where))
        return ends

    def _spelled(self, predicates: Sequence[Scalar]) -> list[Ast]:
        args = columns_of(self.layout.types)
        return [spell.value(e, args, self.r.engine) for e in predicates]

    def _answer(self, path: PathPlan, bound: frozenset[int]) -> list[Scalar]:
        """The predicates of a path that can be evaluated with these columns; they are removed from `left`."""
        ready = [e for e in self.left[path.source] if support(e) <= bound]
        self.left[path.source] = [e for e in self.left[path.source] if e not in ready]
        return ready

    @staticmethod
    def _only(part: _Part, paths: list[int]) -> list[Ast]:
        if part.paths == frozenset(paths):
            return []
        return [s.or_(*(s.eq(col(PATH), s.num(p)) for p in paths))]

    def _start(self, path: PathPlan) -> _Part:
        own = self.layout.columns(path.source)
        bound = frozenset(own) & self.needed
        items: list[Ast] = [named(col(f"c{g - own.start}"), f"c{g}") for g in sorted(bound)]
        items += [col(TIME), col(DIFF)]
        # These predicates read only the source's columns; the names of the others do not matter.
        args = [
            Sql(col(f"c{max(g - own.start, 0)}"), t.type) for g, t in enumerate(self.layout.types)
        ]
        where = [spell.value(e, args, self.r.engine) for e in self._answer(path, bound)]
        name = self.r.define(
            self.node.lir_id, f"p{path.source}", select(items, self.goods[path.source], where=where)
        )
        return _Part(name, bound, frozenset([path.source]))

    def _probe(
        self,
        number: int,
        probe: Probe,
        together: tuple[int, ...],
        parts: dict[int, _Part],
        done: dict[int, int],
    ) -> str:
        """Render one lookup for the paths that share it. Columns that a path has not bound are NULL on its rows."""
        relation, key = probe
        arranged = self.arranged[probe]
        shared = len(together) > 1
        bound = frozenset[int]().union(*(parts[p].bound for p in together))
        branches = [
            self._stream(probe, paths, bound, parts, done[paths[0]], shared=shared)
            for paths in self._alike(together, parts, done)
        ]
        stream = self.r.define(self.node.lir_id, f"q{number}", union_all(branches))
        theirs = self.layout.columns(relation)
        new = frozenset(theirs) & self.needed
        on: list[Ast] = [
            same(col(f"k{i}", "d"), col(f"c{i}", "a"))
            if arranged.columns[i].nullable
            else s.eq(col(f"k{i}", "d"), col(f"c{i}", "a"))
            for i in range(len(key))
        ]
        met = arranged.full
        # Each pair of updates of two inputs must be met once: at one time, by the path of the later input in order only.
        before = {relation < p for p in together}
        # If all updates have one time, comparing times reduces to whether the other row is an update of this step
        # (`NEW`).
        if not self.r.at_once:
            on.append(self._earlier(before))
        elif len(before) > 1:
            on.append(s.lte(col(NEW, "a"), col(EARLIER, "d")))
        elif before == {False}:
            met = arranged.state
        items: list[Ast] = [named(col(f"c{g}", "d"), f"c{g}") for g in sorted(bound)]
        items += [
            named(col(f"c{arranged.permutation[g - theirs.start]}", "a"), f"c{g}")
            for g in sorted(new)
        ]
        items += [col(PATH, "d")] if shared else []
        items += [named(col(TIME, "d"), TIME), named(product(), DIFF)]
        query = join(stream, met, on, items, engine=self.r.engine)
        made = self.r.define(self.node.lir_id, f"j{number}", query)
        everything = bound | new
        return self._filtered(number, made, together, everything, shared=shared)

    def _alike(
        self, together: tuple[int, ...], parts: Mapping[int, _Part], done: Mapping[int, int]
    ) -> list[list[int]]:
        """Groups of paths that look up the same keys of the same relation's rows, which are then read once."""
        found: dict[tuple[str, tuple[Scalar, ...]], list[int]] = {}
        for p in together:
            key = self.paths[p].lookups[done[p]][1]
            found.setdefault((parts[p].relation, tuple(key)), []).append(p)
        return list(found.values())

    def _stream(
        self,
        probe: Probe,
        paths: list[int],
        bound: frozenset[int],
        parts: Mapping[int, _Part],
        stage: int,
        *,
        shared: bool,
    ) -> exp.Expression:
        """The rows of paths that look up the same keys of one relation; columns that a path has not bound are NULL on
        its rows.
        """
        part = parts[paths[0]]
        # In a relation that several paths share, the columns of each are NULL on the others' rows already.
        known = frozenset[int]().union(*(parts[p].bound for p in paths))
        keys = self.paths[paths[0]].lookups[stage][1]
        args = columns_of(self.layout.types)
        items = list[Ast]()
        for g in sorted(bound):
            absent = named(null_of(self.layout.types[g], self.r.engine), f"c{g}")
            items.append(col(f"c{g}") if g in known else absent)
        items += [named(spell.value(e, args, self.r.engine), f"k{i}") for i, e in enumerate(keys)]
        if shared:
            path: Ast = col(PATH)
            if len(paths) == 1:
                path = named(s.integer(s.num(paths[0])), PATH)
            items.append(path)
            items.append(named(self._earlier_of(probe[0], paths), EARLIER))
        items += [col(TIME), col(DIFF)]
        # A key that fails to evaluate is an error of the arrangement by that key, and matches nothing, not even NULL.
        where = [*self._only(part, paths), *no_failure(keys, args, self.r.engine)]
        return select(items, part.relation, where=where)

    def _earlier_of(self, relation: int, paths: list[int]) -> Ast:
        """1 for a path whose updates meet rows of `relation` at their own time, 0 for the others."""
        own = [p for p in paths if relation < p]
        zero, one = (big(number, self.r.engine) for number in (0, 1))
        if len(own) in (0, len(paths)):
            return one if own else zero
        return s.case((s.or_(*(s.eq(col(PATH), s.num(p)) for p in own)), one), otherwise=zero)

    @staticmethod
    def _earlier(before: set[bool]) -> Ast:
        """The rows of an input that an update may meet: not later for inputs before the path's in order, earlier for
        those after it.
        """
        ours, theirs = col(TIME, "d"), col(TIME, "a")
        if len(before) > 1:
            # Times are integers, so ``< ours + 1`` is ``<= ours``.
            return s.lt(theirs, s.add(ours, col(EARLIER, "d")))
        return s.lte(theirs, ours) if before == {True} else s.lt(theirs, ours)

    def _filtered(
        self,
        number: int,
        made: str,
        together: tuple[int, ...],
        everything: frozenset[int],
        *,
        shared: bool,
    ) -> str:
        """Apply the predicates that a path can evaluate after this lookup. Paths that share a lookup apply theirs
        later.
        """
        if shared:
            return made
        where = self._spelled(self._answer(self.paths[together[0]], everything))
        if not where:
            return made
        items: list[Ast] = [col(f"c{g}") for g in sorted(everything)]
        items += [col(TIME), col(DIFF)]
        return self.r.define(self.node.lir_id, f"f{number}", select(items, made, where=where))

    # --- what is read ---

    def _declare(self) -> None:
        """Declare for each lookup of each path where its keys come from."""
        for path in self.paths:
            seen: dict[int, list[Trace]] = {path.source: []}
            equal = Equal(self.layout)
            drivers = self.r.drivers(self.inputs[path.source])
            for probe, key in path.lookups:
                arranged = self.arranged[probe]
                if arranged.name is not None:
                    trace = partial(self._found, seen, equal) if arranged.key else unknown
                    self.r.lookups.need(arranged.name, driven(trace, drivers)(key))
                seen.setdefault(probe[0], []).append(arranged.trace)
                equal.add(probe, key)
            self.ends.append(driven(partial(self._found, seen, equal), drivers))

    def _found(
        self, seen: Mapping[int, Sequence[Trace]], equal: Equal, exprs: tuple[Scalar, ...]
    ) -> Sources:
        """Where the values come from on rows for which a path has seen these inputs: from one input's columns, for as
        many values as possible.
        """
        own = next((min(support(e)) for e in exprs if support(e)), None)
        first = next(iter(seen)) if own is None else self.layout.owner(own)
        best, known = first, tuple[Scalar, ...]()
        for owner in (first, *seen):
            theirs = equal.local(exprs, owner)
            if len(theirs) > len(known):
                best, known = owner, theirs
        if not known:
            return (EVERYTHING,)
        return either(self.inputs[best].trace, *seen.get(best, ()))(known)

    def _trace(self, exprs: tuple[Scalar, ...]) -> Sources:
        return either(*self.ends)(exprs)


def delta_join(renderer: StepState, node: lir.Join, plan: lir.DeltaJoin) -> Collection:
    """Render a delta join's updates."""
    return _DeltaJoin(renderer, node, plan).run()


# --- linear joins --------------------------------------------------------------------------------


def linear_join(renderer: StepState, node: lir.Join, plan: lir.LinearJoin) -> Collection:
    """Render a linear join's updates. Each intermediate stream is kept in an arrangement, so that updates of later
    inputs find it.
    """
    inputs = [renderer.render(below) for below in node.inputs]
    goods = [
        Collection(
            renderer.good(one, node.lir_id, f"i{i}"),
            one.columns,
            errors=False,
            trace=one.trace,
            arranged=one.arranged,
        )
        for i, one in enumerate(inputs)
    ]
    stream = goods[plan.source_relation]
    for number, stage in enumerate(plan.stages):
        lookup = goods[stage.lookup_relation]
        theirs = lookup.arranged[stage.lookup_key]()
        if stream.errors:
            relation = renderer.good(stream, node.lir_id, f"s{number}")
            stream = Collection(relation, stream.columns, errors=False, trace=stream.trace)
        ours = _stream(renderer, node, plan, number, stream)
        stream = _stage(renderer, node, number, stage, (stream, ours), (lookup, theirs))
    closure = plan.final_closure or MapFilterProject.identity(len(stream.columns))
    return renderer.apply(node.lir_id, "", closure, stream)


def _stream(
    renderer: StepState,
    node: lir.Join,
    plan: lir.LinearJoin,
    number: int,
    stream: Collection,
) -> Arranged:
    """The stream arranged by the stage's key: the input's own arrangement if it has one, else an arrangement that the
    join keeps.
    """
    stage = plan.stages[number]
    if number == 0 and plan.source_key == stage.stream_key and stage.stream_key in stream.arranged:
        return stream.arranged[stage.stream_key]()
    form = arrangement_form(stage.stream_key, len(stream.columns))
    return renderer.arranged(node, f"s{number}", form, stream)


def _stage(
    renderer: StepState,
    node: lir.Join,
    number: int,
    stage: lir.LinearStage,
    stream: tuple[Collection, Arranged],
    lookup: tuple[Collection, Arranged],
) -> Collection:
    """Join the stream with the stage's lookup, and apply the stage's closure."""
    (streamed, ours), (looked_up, theirs) = stream, lookup
    keys = len(stage.stream_key)
    kept = len(ours.thinning)
    added = len(theirs.thinning)
    renderer.need(theirs.name, stage.stream_key, streamed)
    renderer.need(ours.name, stage.lookup_key, looked_up)
    on = [
        matches(col(f"c{i}", "d"), col(f"c{i}", "a"), (ours.columns[i], theirs.columns[i]))
        for i in range(keys)
    ]
    # A pair of updates at the same time must be found once: the first half compares with <=, the second with <.
    halves: list[exp.Expression] = []
    at_once = renderer.at_once
    for mine, other, condition, side in (
        (ours.delta, theirs.full, s.lte, ("d", "a")),
        (theirs.delta, ours.state if at_once else ours.full, s.lt, ("a", "d")),
    ):
        items: list[Ast] = [named(col(f"c{i}", side[0]), f"c{i}") for i in range(keys + kept)]
        items += [named(col(f"c{keys + i}", side[1]), f"c{keys + kept + i}") for i in range(added)]
        items += [named(col(TIME, "d"), TIME), named(product(), DIFF)]
        # If all updates have one time, none is later than another, and the state is earlier than all of them.
        timely = [] if at_once else [condition(col(TIME, "a"), col(TIME, "d"))]
        halves.append(join(mine, other, [*on, *timely], items, engine=renderer.engine))
    whole = renderer.define(node.lir_id, f"j{number}", union_all(halves))
    columns = (*ours.columns, *theirs.columns[keys:])
    trace = _pair_trace(renderer, stream, lookup)
    found = Collection(whole, columns, errors=False, trace=trace)
    return renderer.apply(node.lir_id, f"t{number}", stage.closure, found)


def _pair_trace(
    renderer: StepState, stream: tuple[Collection, Arranged], lookup: tuple[Collection, Arranged]
) -> Trace:
    """The trace of the rows key ++ stream ++ lookup: a side's columns come from its updates or its looked-up rows, key
    columns from both.
    """
    (streamed, ours), (looked_up, theirs) = stream, lookup
    keys = len(ours.key)
    width = len(ours.columns)
    left_row = arranged_row(_form(ours))
    right_row = arranged_row(_form(theirs))
    left_trace = either(streamed.trace, driven(ours.trace, renderer.drivers(looked_up)))
    right_trace = either(looked_up.trace, driven(theirs.trace, renderer.drivers(streamed)))

    def traced(exprs: tuple[Scalar, ...]) -> Sources:
        left = prefix(exprs, range(width))
        own = [*range(keys), *range(width, width + len(theirs.thinning))]
        right = prefix(exprs, own)
        shifted = {c: n for n, c in enumerate(own)}
        tries = [
            (len(left), left_trace, tuple(substitute(e, left_row) for e in left)),
            (
                len(right),
                right_trace,
                tuple(substitute(permute(e, shifted), right_row) for e in right),
            ),
        ]
        found = [t(known) for n, t, known in sorted(tries, key=lambda t: -t[0]) if n]
        exact = (sources for sources in found if all(one.exprs for one in sources))
        return next(exact, found[0] if found else (EVERYTHING,))

    return traced


def _form(arranged: Arranged) -> lir.ArrangementForm:
    return lir.ArrangementForm(arranged.key, arranged.permutation, arranged.thinning)


def _join(r: StepState, node: lir.Join) -> Collection:
    """Render a join's updates."""
    if isinstance(node.plan, lir.DeltaJoin):
        return delta_join(r, node, node.plan)
    return linear_join(r, node, node.plan)


#: The nodes that this module renders.
NODES: Nodes = {lir.Join: _join}
