"""Contents at one time: one-shot queries, and the stages of a hydration.

Promise: the plan is the same as in a step, without times: there are multiplicities only. A hydration fills one
arrangement in each stage. The walk over the plan stops at the first arrangement that is not filled yet, and what was
rendered by then is that stage's statement; filled arrangements are read instead of what is below them. So the
arrangements are those that a step keeps, in an order in which each can be filled, and nodes become hydrated one
after another. Errors are counted as in a step: once for each stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import expressions as exp

from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import Engine, Sql
from mzsql.lir import plan as lir
from mzsql.lir.forms import reduce_form
from mzsql.render.contents.join import delta_join, linear_join
from mzsql.render.contents.state import ContentsState
from mzsql.render.nodes import extremes as x
from mzsql.render.nodes import groups as g
from mzsql.render.nodes import windows as w
from mzsql.render.nodes.collection import Arranged, Collection
from mzsql.render.nodes.recursion import (
    Binding,
    Loop,
    Recursion,
    counted,
    nothing,
    relations_of,
    strictest,
)
from mzsql.render.nodes.renderer import Renderer
from mzsql.render.nodes.rows import output_types
from mzsql.render.nodes.topk import places, refusals
from mzsql.render.statement import (
    DIFF,
    ERROR,
    Ast,
    big,
    col,
    named,
    no_error,
    null_of,
    select,
    union_all,
)
from mzsql.render.updates import consolidated, remaining
from mzsql.repr.types import ColumnType


class ContentsRenderer(ContentsState):
    """Renders contents at one time."""

    # --- recursion ---

    def recursion(self, node: lir.LetRec) -> Collection:
        """The body over the contents of the bindings; `loops` tells the runner how to compute these."""
        if self.hydrating:
            fixpoint = recursion_of(self, node)
            return Collection(fixpoint.relation, fixpoint.columns, errors=True)
        for local in node.ids:
            columns = _binding_columns(node, local)
            made = Collection(f"rec_{next(self._numbers)}", columns, errors=True)
            self._recursive[local] = made
            self._fingerprints[local] = made.relation
        bindings: list[Binding] = []
        for local, value in zip(node.ids, node.values, strict=True):
            # A renderer of its own, since each binding is a statement of its own: what it reads of its surroundings
            # it renders again.
            inner = ContentsRenderer(self.shape, self.engine)
            inner._numbers, inner._recursive = self._numbers, dict(self._recursive)
            inner._pending, inner._fingerprints = dict(self._pending), dict(self._fingerprints)
            inner._shared = {at: replace(one, arranged={}) for at, one in self._recursive.items()}
            done = inner.render(value)
            whole, _, _ = inner.statement(done, [query for query, _ in inner.diverted])
            bindings.append(
                Binding(
                    self._recursive[local].relation,
                    nothing(done.columns, self.engine),
                    tuple(inner.loops),
                    counted(whole, len(done.columns), self.engine),
                )
            )
        self.loops.append(Loop(tuple(bindings), strictest(node.limits)))
        for local in node.ids:
            self._shared[local] = replace(self._recursive[local], arranged={})
        return self.render(node.body)

    # --- what looks at several rows at once ---

    def stateful(self, node: lir.Plan) -> Collection:
        """Render a node that keeps state, or looks at several rows at once."""
        return _STATEFUL[type(node)](self, node)

    def join(self, node: lir.Join) -> Collection:
        """Render a join."""
        inputs = [self.render(below) for below in node.inputs]
        goods = [
            replace(one, relation=self.good(one, node.lir_id, f"i{i}"), errors=False)
            for i, one in enumerate(inputs)
        ]
        if isinstance(node.plan, lir.DeltaJoin):
            return delta_join(self, node, node.plan, goods)
        return linear_join(self, node, node.plan, goods)

    # --- groups ---

    def reduce(self, node: lir.Reduce) -> Collection:
        """Render a Reduce."""
        below = self.render(node.input)
        row = g.key_values(node, len(below.columns))
        groups = g.plan_groups(node, below.columns, output_types(row, below.columns))
        rows = self.apply(node.lir_id, "v", groups.row, below)
        parts = x.parts_of(groups) if self.hydrating else None
        if groups.accumulable:
            made = self._accumulated(node, groups, rows)
        elif parts is not None:
            made = self._parted(node, parts, rows)
        else:
            made = self._reread(node, groups, rows)
        form = reduce_form(groups.arity, len(made.columns))

        def arranged() -> Arranged:
            good = self.good(made, node.lir_id, "g")
            return Arranged(form.key, form.permutation, form.thinning, made.columns, good)

        made.arranged[form.key] = self.once(arranged)
        return made

    def _accumulated(self, node: lir.Reduce, groups: g.Groups, rows: Collection) -> Collection:
        fill = self._sums(node, groups, rows)
        name = self.kept(node, "acc", fill, frozenset())
        if name is not None:
            fill = Collection(self._sums_of(node, groups, name), fill.columns, errors=False)
        return g.from_sums(self, node, groups, fill, "o", "")

    def _sums(self, node: lir.Reduce, groups: g.Groups, rows: Collection) -> Collection:
        """The sums of each existing group, and errors."""
        lid = node.lir_id
        columns = (*groups.key, *groups.sums)
        parts: list[exp.Expression] = [g.contributions(self, groups, rows, [])]
        parts += [
            self._distinct(node, groups, rows, number, one) for number, one in groups.distinct
        ]
        source = self.define(lid, "c", union_all(parts))
        sums = self.define(lid, "p", g.summed(self, groups, source, [ERROR] if rows.errors else []))
        items: list[Ast] = [col(f"c{i}") for i in range(len(columns))]
        count = col(f"c{len(columns) - 1}")
        diff: Ast = big(1, self.engine)
        there = s.gt(count, s.num(0))
        if rows.errors:
            items.append(col(ERROR))
            # An error row is not a group: its count of rows is its multiplicity.
            diff = s.case((s.is_null(col(ERROR)), diff), otherwise=count)
            there = s.or_(there, s.is_not_null(col(ERROR)))
        query = select([*items, named(diff, DIFF)], sums, where=[there])
        return Collection(self.define(lid, "s", query), columns, rows.errors)

    def _sums_of(self, node: lir.Reduce, groups: g.Groups, name: str) -> str:
        """Each group's sums, from its partial sums."""
        k = groups.arity
        keys: list[Ast] = [col(f"c{i}") for i in range(k)]
        totals: list[Ast] = [
            named(
                s.cast(
                    exp.Sum(this=s.cast(s.mul(col(f"c{k + i}"), col(DIFF)), t.type, self.engine)),
                    t.type,
                    self.engine,
                ),
                f"c{k + i}",
            )
            for i, t in enumerate(groups.sums)
        ]
        count = exp.Sum(this=s.mul(col(f"c{k + len(totals) - 1}"), col(DIFF)))
        query = select(
            [*keys, *totals, named(big(1, self.engine), DIFF)],
            name,
            group=keys,
            having=s.gt(count, s.num(0)),
        )
        return self.define(node.lir_id, "d", query)

    def _distinct(
        self, node: lir.Reduce, groups: g.Groups, rows: Collection, number: int, one: g.Aggregate
    ) -> exp.Select:
        """What the distinct values of a group add to the sums of a DISTINCT aggregate."""
        lid, k = node.lir_id, groups.arity
        keys: list[Ast] = [col(f"c{i}") for i in range(k)]
        value = col(f"c{one.argument}")
        where = [s.is_null(col(ERROR))] if rows.errors else []
        where += [s.is_not_null(value)] if one.func.ignores_nulls else []
        shown: list[Ast] = [*keys, named(value, f"c{k}")]
        query = consolidated(rows.relation, [*keys, value], shown=shown, where=where)
        columns = (*groups.key, one.argument_type)
        pairs = self.define(lid, f"d{number}", query)
        pairs = self.kept(node, f"d{number}", Collection(pairs, columns, errors=False)) or pairs
        mine = [*keys, col(f"c{k}")]
        single = select(
            [*mine, named(big(1, self.engine), DIFF)],
            pairs,
            group=mine,
            having=remaining(positive=True),
        )
        source = self.define(lid, f"d{number}c", single)
        own = g.summands_of(one, self.engine, Sql(col(f"c{k}"), one.argument_type.type), col(DIFF))
        parts: list[Ast] = [s.cast(s.num(0), t.type, self.engine) for t in groups.sums]
        parts[one.start : one.start + len(own)] = own
        made: list[Ast] = [*keys, *(named(p, f"s{i}") for i, p in enumerate(parts))]
        made += [named(no_error(self.engine), ERROR)] if rows.errors else []
        return select(made, source)

    def _parted(self, node: lir.Reduce, parts: x.Parts, rows: Collection) -> Collection:
        lid, groups, meta = node.lir_id, parts.groups, [DIFF]
        query = self.consolidated(rows.relation, len(rows.columns), errors=rows.errors)
        changes = replace(rows, relation=self.define(lid, "e", query))
        good = replace(rows, relation=self.good(changes, lid, "eg"), errors=False)
        names: list[str] = []
        for number in range(len(parts.values)):
            found = self.define(lid, f"h{number}", x.pairs(parts, number, good.relation, []))
            fill = Collection(found, parts.columns(number), errors=False)
            names.append(self.kept(node, f"h{number}", fill) or found)
        sums = None
        if parts.sums is not None:
            fill = self._sums(node, parts.sums, good)
            sums = self.kept(node, "acc", fill) or fill.relation
        united = self.define(lid, "u", x.together(self, parts, names, sums, meta))
        held = self.define(lid, "r", x.added_up(self, parts, united))
        results = self.define(lid, "a", x.results(self, node, parts, held, [], "a"))
        errors = g.can_fail(groups)
        items: list[Ast] = [col(f"c{i}") for i in range(len(groups.output))]
        items += [col(ERROR)] if errors else []
        items.append(named(big(1, self.engine), DIFF))
        made = Collection(self.define(lid, "s", select(items, results)), groups.output, errors)
        return self.apply(lid, "", groups.after, made)

    def _reread(self, node: lir.Reduce, groups: g.Groups, rows: Collection) -> Collection:
        lid, width = node.lir_id, len(rows.columns)
        query = self.consolidated(rows.relation, width, errors=rows.errors)
        changes = replace(rows, relation=self.define(lid, "c", query))
        relation = self._keep_rows(node, changes)
        row: list[Ast] = [col(f"c{i}") for i in range(width)]
        held = self.define(lid, "r", consolidated(relation, row, positive=True))
        if w.window_of(node) is None:
            query = g.aggregated(self, node, groups, held, [], "a")
            errors, output = g.can_fail(groups), groups.output
        else:
            query = w.windowed(self, node, groups, held)
            errors, output = w.can_fail(groups), w.output(node, groups)
        results = self.define(lid, "a", query)
        items: list[Ast] = [col(f"c{i}") for i in range(len(output))]
        items += [col(ERROR)] if errors else []
        items.append(named(big(1, self.engine), DIFF))
        made = Collection(self.define(lid, "s", select(items, results)), output, errors)
        return self.apply(lid, "", groups.after, made)

    def _keep_rows(self, node: lir.Plan, changes: Collection) -> str:
        """The good rows, kept in an arrangement. While that is being filled, the stage's statement carries the error
        rows too.
        """
        carried = self.carrying(changes, node.lir_id, "cr")
        mark = frozenset([changes.relation]) if carried.errors else frozenset[str]()
        name = self.kept(node, "in", carried, mark)
        return self.good(changes, node.lir_id, "cg") if name is None else name

    def top_k(self, node: lir.TopK) -> Collection:
        """Render a TopK."""
        below = self.render(node.input)
        lid, plan, width = node.lir_id, node.plan, len(below.columns)
        order = (*plan.group_key, *(c for c in range(width) if c not in plan.group_key))
        query = self.consolidated(below.relation, width, errors=below.errors)
        changes = replace(below, relation=self.define(lid, "c", query))
        items: list[Ast] = [named(col(f"c{c}"), f"c{i}") for i, c in enumerate(order)]
        items += [col(ERROR)] if changes.errors else []
        moved = Collection(
            self.define(lid, "i", select([*items, col(DIFF)], changes.relation)),
            tuple(below.columns[c] for c in order),
            changes.errors,
        )
        relation = self._keep_rows(node, moved)
        back = {c: i for i, c in enumerate(order)}
        row: list[Ast] = [col(f"c{i}") for i in range(width)]
        restored = self.define(
            lid,
            "h",
            select(
                [*(named(col(f"c{back[c]}"), f"c{c}") for c in range(width)), col(DIFF)], relation
            ),
        )
        held = self.define(lid, "r", consolidated(restored, row, positive=True))
        refused = refusals(self, plan, held, below.columns, [])
        if refused is not None:
            self.divert(self.define(lid, "e", refused))
        name = self.define(lid, "", places(self, plan, held, below.columns, []))
        return Collection(name, below.columns, errors=False)

    def threshold(self, node: lir.Threshold) -> Collection:
        """Render a Threshold: the rows with positive multiplicity."""
        below = self.render(node.input)
        lid, form = node.lir_id, node.ensure_arrangement
        ours = below.arranged[form.key]()
        self.good(below, lid, "i")
        row: list[Ast] = [col(f"c{i}") for i in range(len(ours.columns))]
        held = self.define(lid, "s", consolidated(ours.full, row, positive=True))
        items: list[Ast] = [named(col(f"c{at}"), f"c{i}") for i, at in enumerate(form.permutation)]
        name = self.define(lid, "", select([*items, col(DIFF)], held))
        made = Collection(name, below.columns, errors=False)
        made.arranged[form.key] = lambda: replace(ours, full=held)
        return made

    # --- statements ---

    def statement(
        self, made: Collection, failed: Sequence[exp.Select]
    ) -> tuple[exp.Expression, tuple[str, ...], set[str]]:
        """The statement for a collection and error rows; the relations that it reads; the CTEs that it reaches."""
        items: list[Ast] = [
            named(s.cast(col(f"c{i}"), t.type, self.engine), f"c{i}")
            for i, t in enumerate(made.columns)
        ]
        items.append(named(col(ERROR) if made.errors else no_error(self.engine), ERROR))
        items.append(named(s.big(col(DIFF)), DIFF))
        branches: list[exp.Expression] = [select(items, made.relation)]
        for query in failed:
            error = query.copy()
            blank: list[Ast] = [
                named(null_of(t, self.engine), f"c{i}") for i, t in enumerate(made.columns)
            ]
            error.set("expressions", [*blank, col(ERROR), named(s.big(col(DIFF)), DIFF)])
            branches.append(error)
        body = union_all(branches)
        ctes, others = self.out.reached(body)
        return self.out.finish(body), tuple(sorted(others)), ctes


def recursion_of(r: Renderer, node: lir.LetRec) -> Recursion:
    """A recursive node, with everything in it, computed at one time; `r` is the renderer that has reached it."""
    inner = r.inside(ContentsRenderer(r.shape, Engine.DUCKDB))
    made = inner.render(node)
    whole, _, _ = inner.statement(made, [query for query, _ in inner.diverted])
    statement = counted(whole, len(made.columns), Engine.DUCKDB)
    loops = tuple(inner.loops)
    read = relations_of(loops, statement)
    inputs = sorted(f"snap_{spec.id}" for spec in r.shape.inputs if f"snap_{spec.id}" in read)
    relation = f"fix_{node.lir_id}"
    return Recursion(relation, node.lir_id, made.columns, loops, statement, tuple(inputs))


def _binding_columns(node: lir.LetRec, local: int) -> tuple[ColumnType, ...]:
    """The columns of a recursive binding, as its readers know them."""
    for part in lir.walk(node):
        if isinstance(part, lir.Get) and part.id == local:
            return part.columns
    return ()  # nobody reads it


_STATEFUL: Mapping[type[Any], Callable[[ContentsRenderer, Any], Collection]] = {
    lir.Join: ContentsRenderer.join,
    lir.Reduce: ContentsRenderer.reduce,
    lir.TopK: ContentsRenderer.top_k,
    lir.Threshold: ContentsRenderer.threshold,
}
