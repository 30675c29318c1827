"""Builds and optimizes dataflows: from a query and the views that it reads to one optimized `MirDataflow`.

Promise: plain views are inlined transitively, a user's view that is read several times as a `Let` binding; a view on
which an index is exported is an object of its own. Only what is read is imported.
Source: Materialize's `optimize_dataflow`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr.dataflow import Export, IndexExport, MirDataflow, MirObject, MirSource
from mzsql.expr.memo import remembering
from mzsql.expr.typing import relation_type
from mzsql.repr.depth import deep
from mzsql.repr.ids import GlobalId, sort_key
from mzsql.transform import pipeline
from mzsql.transform.context import OptimizerContext
from mzsql.transform.monotonic import annotate_monotonic
from mzsql.transform.used_indexes import annotate_imports
from mzsql.transform.visit import rewrite

#: Returns the optimized MIR of a plain view; None for what is read from a shard or an index.
ViewLookup = Callable[[GlobalId], mir.Relation | None]
#: Returns the type and monotonicity of what is read from a shard.
SourceLookup = Callable[[GlobalId], MirSource]


def _largest_id(rel: mir.Relation) -> int:
    """The largest id of a binding in a plan."""
    bound = (
        max(node.ids) if isinstance(node, mir.LetRec) else node.id
        for node in mir.walk(rel)
        if isinstance(node, mir.Let | mir.LetRec)
    )
    return max(bound, default=-1)


class _Builder:
    """Collects what is found while a dataflow is built."""

    def __init__(
        self, view_lookup: ViewLookup, source_lookup: SourceLookup, ctx: OptimizerContext
    ) -> None:
        self._view_lookup = view_lookup
        self._source_lookup = source_lookup
        self._ctx = ctx
        self.sources: dict[GlobalId, MirSource] = {}

    def _view(self, gid: GlobalId) -> mir.Relation | None:
        """A plain view's definition; None for what is read as it is: a shard, or a view that has an index."""
        return None if self._ctx.indexes(gid) else self._view_lookup(gid)

    def _read(self, gid: GlobalId) -> None:
        view = self._view_lookup(gid)
        if view is None:
            self.sources[gid] = self._source_lookup(gid)
        else:
            self.sources[gid] = MirSource(gid, relation_type(view))

    def inline(self, rel: mir.Relation) -> mir.Relation:
        """Replace Gets of views by the views' plans, until none is left; a user's view that is read several times is bound by a Let.

        A view's plan is closed, so its local ids are only meaningful inside it; the bindings of views get ids that no plan has.
        """
        views: dict[GlobalId, mir.Relation] = {}
        uses: Counter[GlobalId] = Counter()
        self._collect(rel, views, uses)
        if not views:
            return rel
        first = 1 + max(map(_largest_id, (rel, *views.values())))
        # Each reader of the system's wants a few rows of it, found by what it asks for.
        several = [gid for gid in views if uses[gid] > 1 and not gid.startswith("s")]
        local = {gid: first + n for n, gid in enumerate(several)}
        placed: dict[GlobalId, mir.Relation] = {}

        def resolve(node: mir.Relation) -> mir.Relation:
            if not isinstance(node, mir.Get) or isinstance(node.id, int) or node.id not in views:
                return node
            if node.id in local:
                return mir.Get(local[node.id], relation_type(views[node.id]))
            return placed[node.id]

        # Each stands after those it reads.
        for gid, view in views.items():
            placed[gid] = rewrite(view, resolve)
        body = rewrite(rel, resolve)
        for gid in reversed(local):
            body = mir.Let(local[gid], placed[gid], body)
        return body

    def _collect(
        self, rel: mir.Relation, views: dict[GlobalId, mir.Relation], uses: Counter[GlobalId]
    ) -> None:
        """Find the views that are read, each after those it reads itself, and how often; what is no view is imported."""
        read = Counter(
            n.id for n in mir.walk(rel) if isinstance(n, mir.Get) and not isinstance(n.id, int)
        )
        uses.update(read)
        for gid in sorted(read, key=sort_key):
            if gid in views or gid in self.sources:
                continue
            view = self._view(gid)
            if view is None:
                self._read(gid)
            else:
                self._collect(view, views, uses)
                views[gid] = view

    def indexed(self, gid: GlobalId) -> MirObject | None:
        """What an index is on, as an object of its own; None if it is read as it is."""
        view = self._view(gid)
        if view is None:
            self._read(gid)
            return None
        plan = self.inline(view)
        return MirObject(gid, plan, relation_type(plan))


@remembering()
def build_dataflow(
    export: Export,
    rel: mir.Relation | None,
    view_lookup: ViewLookup,
    source_lookup: SourceLookup,
    ctx: OptimizerContext,
) -> MirDataflow:
    """The dataflow of an export, with everything that it reads.

    Args:
        export: what is to be maintained or answered.
        rel: the query; None for an index export, which reads what the index is on.
        view_lookup: returns the definition of a plain view. A view with an index in `ctx` is read through the index
            instead.
        source_lookup: describes a collection that is read.
        ctx: the optimizer's context.
    """
    builder = _Builder(view_lookup, source_lookup, ctx)
    objects: list[MirObject] = []
    with deep():
        if isinstance(export, IndexExport):
            on = builder.indexed(export.on_id)
            if on is not None:
                objects.append(on)
            typ = builder.sources[export.on_id].typ if on is None else on.typ
            plan: mir.Relation = mir.ArrangeBy(mir.Get(export.on_id, typ), (export.key,))
            objects.append(MirObject(export.id, plan, typ))
        else:
            assert rel is not None, "only an index export goes without a query"
            plan = builder.inline(rel)
            objects.append(MirObject(export.id, plan, relation_type(plan)))
    return MirDataflow(tuple(builder.sources.values()), (), tuple(objects), export)


@remembering()
def optimize_dataflow(df: MirDataflow, ctx: OptimizerContext) -> MirDataflow:
    """Run the whole pipeline over a dataflow."""
    readable = {source.id: source for source in df.source_imports}
    with deep():
        objects = []
        for obj in df.objects:
            plan = pipeline.optimize(obj.plan, ctx)
            objects.append(msgspec.structs.replace(obj, plan=plan))
        df = msgspec.structs.replace(df, objects=tuple(objects))
        df = annotate_monotonic(df)
        return annotate_imports(df, ctx, readable)


def optimize_local(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Run the logical transforms over one view, without regard to indexes."""
    with remembering(apart=True), deep():
        return pipeline.optimize_logical(rel, ctx)


def optimize_query(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Run the logical transforms over a query, without regard to indexes.

    Call it in the run in which the query's dataflow is optimized: what was derived of its parts is then known there.
    """
    with deep():
        return pipeline.optimize_query(rel, ctx)
