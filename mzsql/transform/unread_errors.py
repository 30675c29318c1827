"""Which indexed views a plan reads without reading columns that can fail.

Promise: a column that nobody reads causes no error. But an index on a view contains the errors of the whole view,
whichever column caused them, while a reader of the view itself does not compute columns that it leaves out. So a
maintained plan that leaves out a column which can fail cannot use the index; the view is computed in the plan
instead. Trade-off: the index's arrangement is then not shared, and the decision depends on what can fail, not on
what does. Rows that a reader filters out cause their errors all the same, as in Materialize.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.dataflow import MirDataflow
from mzsql.repr.ids import GlobalId
from mzsql.transform.projection_pushdown import needed_inputs, projection_pushdown
from mzsql.transform.scalars import may_error
from mzsql.transform.visit import project, rewrite

Read = dict[GlobalId | int, set[int]]


def errors_unread(
    df: MirDataflow, view_of: Callable[[GlobalId], mir.Relation | None]
) -> frozenset[GlobalId]:
    """The views with indexes that an optimized dataflow imports, and of which it leaves out a column that can fail.

    Args:
        df: the dataflow.
        view_of: returns the optimized plan of a plain view; None for what is stored.
    """
    views = {one.on_id: _whole(one.on_id, view_of) for one in df.index_imports}
    failing = {gid: view for gid, view in views.items() if view is not None and _failures(view)}
    if not failing:
        return frozenset()
    read: Read = {}
    for obj in df.objects:
        _note(obj.plan, range(mir.arity(obj.plan)), read)
    return frozenset(
        gid
        for gid, view in failing.items()
        if len(columns := read.get(gid, set())) < mir.arity(view) and _fewer(view, columns)
    )


def _whole(
    gid: GlobalId, view_of: Callable[[GlobalId], mir.Relation | None]
) -> mir.Relation | None:
    """A plain view's plan, down to what is stored."""

    def looked_into(node: mir.Relation) -> mir.Relation:
        if not isinstance(node, mir.Get) or isinstance(node.id, int):
            return node
        below = _whole(node.id, view_of)
        return node if below is None else below

    view = view_of(gid)
    return None if view is None else rewrite(view, looked_into)


def _fewer(view: mir.Relation, columns: Iterable[int]) -> bool:
    """Whether less of a view can fail if only some of its columns are read."""
    narrow = projection_pushdown(project(view, sorted(columns)))
    return _failures(narrow) < _failures(projection_pushdown(view))


def _failures(rel: mir.Relation) -> int:
    return sum(may_error(expr) for node in mir.walk(rel) for expr in _computed(node))


def _computed(rel: mir.Relation) -> Iterator[sc.Scalar]:
    """The expressions that a node computes for each row."""
    match rel:
        case mir.Map(scalars=exprs) | mir.Filter(predicates=exprs) | mir.FlatMap(exprs=exprs):
            yield from exprs
        case mir.Join(equivalences=classes):
            yield from (expr for cls in classes for expr in cls)
        case mir.Reduce(group_key=key, aggregates=aggregates):
            yield from (*key, *(one.expr for one in aggregates))
        case mir.TopK(limit=limit) if limit is not None:
            yield limit
        case _:
            pass


def _note(rel: mir.Relation, wanted: Iterable[int], read: Read) -> None:
    """Record which columns of objects and bindings are read."""
    match rel:
        case mir.Get(id=gid):
            read.setdefault(gid, set()).update(wanted)
        case mir.Let(id=local, value=value, body=body):
            _note(body, wanted, read)
            _note(value, read.get(local, set()), read)
        case mir.LetRec():
            for part in mir.inputs(rel):
                _note(part, range(mir.arity(part)), read)
        case mir.ArrangeBy(input=inner, keys=keys):
            _note(inner, {*wanted, *(c for key in keys for e in key for c in sc.support(e))}, read)
        case mir.Join():
            # A planned join outputs its inputs' columns as an unplanned one does, so the same columns of the inputs
            # are read.
            unplanned = mir.Join(rel.inputs, rel.equivalences)
            for part, need in zip(rel.inputs, needed_inputs(unplanned, wanted), strict=True):
                _note(part, need, read)
        case _:
            for part, need in zip(mir.inputs(rel), needed_inputs(rel, wanted), strict=True):
                _note(part, need, read)
