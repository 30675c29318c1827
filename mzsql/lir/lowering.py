"""Lowers MIR to LIR: gives every node its id, absorbs row-wise operators into other nodes, and adds the arrangements
that nodes need.

Promise: a node's id is assigned when the node is made, after its children (and after the arrangements between them
and it), from one counter for the dataflow that starts at 0. A row-wise operator remains as an `Mfp` node only if no
Get, Join, FlatMap or Reduce could absorb it. The order of lookups is the optimizer's choice; lowering never changes
it.
Source: Materialize's `mz_compute_types::plan::lowering`.
"""

from __future__ import annotations

import msgspec

from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.dataflow import MirDataflow
from mzsql.expr.memo import remembering
from mzsql.expr.mfp import MapFilterProject, compose, extract_mfp
from mzsql.expr.temporal import extract_temporal
from mzsql.expr.typing import relation_type
from mzsql.lir import plan as lir
from mzsql.lir import reductions, rows
from mzsql.lir.forms import RAW, arrangement_form, form_by_key, reduce_form
from mzsql.lir.joins import JoinInputs, plan_join
from mzsql.lir.refine import refine
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import check_for_interrupts
from mzsql.repr.types import ColumnType, RelationType
from mzsql.transform.features import OptimizerFeatures


class Planned(msgspec.Struct, frozen=True):
    """A dataflow at its last two stages: optimized MIR and LIR."""

    mir: MirDataflow
    plan: lir.DataflowDescription


class _Lowered(msgspec.Struct, frozen=True):
    """A physical node, the forms of its output, and its number of columns."""

    plan: lir.Plan
    forms: lir.AvailableCollections
    arity: int


@remembering()
def lower(df: MirDataflow, features: OptimizerFeatures | None = None) -> lir.DataflowDescription:
    """The physical plan of an optimized dataflow.

    Joins must have implementations, which `mzsql.transform.optimize_dataflow` gives them.
    """
    features = OptimizerFeatures() if features is None else features
    lowering = _Lowering(df, features)
    objects = tuple(
        lir.BuildDesc(obj.id, lowering.lower_object(obj.id, obj.plan), obj.typ)
        for obj in df.objects
    )
    sources = tuple(lir.SourceImport(s.id, s.typ, None, s.monotonic) for s in df.source_imports)
    return refine(lir.DataflowDescription(sources, df.index_imports, objects, df.export), features)


class _Lowering:
    """The counter of ids, and what is known of the objects and bindings in scope."""

    def __init__(self, df: MirDataflow, features: OptimizerFeatures) -> None:
        self._features = features
        self._next_id = 0
        self._forms: dict[GlobalId | int, lir.AvailableCollections] = {}
        self._types: dict[int, RelationType] = {}
        for source in df.source_imports:
            self._forms[source.id] = RAW
        for index in df.index_imports:
            known = self._forms.get(index.on_id, lir.AvailableCollections(raw=False))
            self._forms[index.on_id] = lir.AvailableCollections(
                raw=known.raw,
                arranged=(*known.arranged, arrangement_form(index.key, index.typ.arity)),
                types=index.typ.columns,
            )

    def lower_object(self, gid: GlobalId, rel: mir.Relation) -> lir.Plan:
        """Lower one object; later objects can read it."""
        lowered = self._lower(rel)
        self._forms[gid] = lowered.forms
        return lowered.plan

    def _id(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    # --- the forms a parent needs ---------------------------------------------------------------

    def _raw(self, child: _Lowered) -> lir.Plan:
        """The child's raw rows; if it is only arranged, an arrangement is read back."""
        if child.forms.raw:
            return child.plan
        key = child.forms.arranged[0].key
        return lir.ArrangeBy(self._id(), child.plan, key, RAW)

    def _arranged(
        self,
        child: _Lowered,
        missing: list[lir.ArrangementForm],
        types: tuple[ColumnType, ...],
        raw: bool,
    ) -> _Lowered:
        """The child with further arrangements."""
        if not missing:
            return child
        forms = lir.AvailableCollections(
            raw=raw, arranged=(*child.forms.arranged, *missing), types=types
        )
        key = child.forms.arranged[0].key if child.forms.arranged else None
        node = lir.ArrangeBy(self._id(), child.plan, key, forms)
        return _Lowered(node, forms, child.arity)

    def _with_mfp(self, child: _Lowered, mfp: MapFilterProject | None) -> _Lowered:
        """The child under an Mfp node, unless the MFP does nothing."""
        if mfp is None or mfp.is_identity:
            return child
        key = None
        if child.forms.arranged:
            form = child.forms.arranged[0]
            key = form.key
            mfp = rows.over_arrangement(mfp, form).optimize()
        return _Lowered(lir.Mfp(self._id(), child.plan, mfp, key), RAW, mfp.output_arity)

    # --- nodes ----------------------------------------------------------------------------------

    def _lower(self, rel: mir.Relation) -> _Lowered:
        check_for_interrupts()
        mfp, below = extract_mfp(rel)
        mfp = mfp.optimize()
        match below:
            case mir.Get():
                return self._get(below, mfp)
            case mir.Join():
                return self._join(below, mfp)
            case mir.FlatMap():
                return self._flat_map(below, mfp)
            case mir.Reduce():
                return self._reduce(below, mfp)
            case _:
                return self._with_mfp(self._lower_plain(below), mfp)

    def _lower_plain(self, rel: mir.Relation) -> _Lowered:
        """Lower a node that absorbs no MFP."""
        match rel:
            case mir.Constant(rows=constant, error=error, typ=typ):
                node = lir.Constant(self._id(), constant, error, typ.columns)
                return _Lowered(node, RAW, typ.arity)
            case mir.Let():
                return self._let(rel)
            case mir.LetRec():
                return self._let_rec(rel)
            case mir.TopK():
                child = self._lower(rel.input)
                plan = reductions.top_k_plan(rel, child.arity)
                source = self._raw(child)
                return _Lowered(lir.TopK(self._id(), source, plan), RAW, child.arity)
            case mir.Negate():
                child = self._lower(rel.input)
                source = self._raw(child)
                return _Lowered(lir.Negate(self._id(), source), RAW, child.arity)
            case mir.Union():
                children = [self._lower(part) for part in rel.inputs]
                sources = tuple(self._raw(child) for child in children)
                return _Lowered(lir.Union(self._id(), sources), RAW, children[0].arity)
            case mir.Threshold():
                return self._threshold(rel)
            case mir.ArrangeBy():
                return self._arrange_by(rel)
            case _:
                msg = f"{type(rel).__name__} cannot stand here in an optimized plan"
                raise AssertionError(msg)

    def _get(self, rel: mir.Get, mfp: MapFilterProject) -> _Lowered:
        forms = self._forms[rel.id]
        columns = rel.typ.columns
        if mfp.is_identity:
            node = lir.Get(self._id(), rel.id, forms, lir.PassArrangements(), columns)
            return _Lowered(node, forms, len(columns))
        plan: lir.GetPlan
        if forms.arranged:
            form = forms.arranged[0]
            # Of the available arrangements only the one that is read is listed.
            forms = msgspec.structs.replace(forms, arranged=(form,))
            arranged = rows.over_arrangement(mfp, form).optimize()
            plan = lir.GetArrangement(form.key, None, arranged)
        else:
            plan = lir.GetCollection(mfp)
        node = lir.Get(self._id(), rel.id, forms, plan, columns)
        return _Lowered(node, RAW, mfp.output_arity)

    def _let(self, rel: mir.Let) -> _Lowered:
        value = self._lower(rel.value)
        self._forms[rel.id] = value.forms
        self._types[rel.id] = relation_type(rel.value, self._types)
        body = self._lower(rel.body)
        node = lir.Let(self._id(), rel.id, value.plan, body.plan)
        return _Lowered(node, body.forms, body.arity)

    def _let_rec(self, rel: mir.LetRec) -> _Lowered:
        self._types.update(relation_types_of_bindings(rel, self._types))
        # The values may read each other before their own forms are known, so all are read raw.
        for local in rel.ids:
            self._forms[local] = RAW
        values = tuple(self._raw(self._lower(value)) for value in rel.values)
        body = self._lower(rel.body)
        node = lir.LetRec(self._id(), rel.ids, values, rel.limits, body.plan)
        return _Lowered(node, body.forms, body.arity)

    def _flat_map(self, rel: mir.FlatMap, mfp: MapFilterProject) -> _Lowered:
        window = reductions.unnested_window(rel, mfp)
        if window is not None:
            return self._window(*window)
        child = self._lower(rel.input)
        exprs = rel.exprs
        key = None
        if child.forms.arranged:
            form = child.forms.arranged[0]
            key = form.key
            exprs = tuple(sc.permute(e, dict(enumerate(form.permutation))) for e in exprs)
        node = lir.FlatMap(self._id(), child.plan, key, exprs, rel.func, rel.output, mfp)
        return _Lowered(node, RAW, mfp.output_arity)

    def _window(self, rel: mir.Reduce, mfp: MapFilterProject) -> _Lowered:
        """A window function's Reduce that outputs the elements of its lists itself."""
        child = self._lower(rel.input)
        form = child.forms.arranged[0] if child.forms.arranged else None
        key_val = reductions.key_val_plan(rel, child.arity, form)
        arity = len(rel.group_key) + 1
        plan = lir.ReduceBasic(((0, rel.aggregates[0]),), fused_unnest_list=True)
        key = None if form is None else form.key
        after = MapFilterProject.identity(arity)
        node = lir.Reduce(self._id(), child.plan, key, key_val, plan, after)
        forms = lir.AvailableCollections(raw=False, arranged=(reduce_form(arity - 1, arity),))
        return self._with_mfp(_Lowered(node, forms, arity), mfp)

    def _join(self, rel: mir.Join, mfp: MapFilterProject) -> _Lowered:
        # Temporal filters keep state of their own, so they stay in a node above the join.
        mfp, temporal = extract_temporal(mfp)
        children = [self._lower(part) for part in rel.inputs]
        columns = [relation_type(part, self._types).columns for part in rel.inputs]
        inputs = JoinInputs([child.forms for child in children], columns)
        plan = plan_join(rel, mfp, inputs)
        arranged = [
            self._arranged(child, missing, cols, child.forms.raw).plan
            for child, missing, cols in zip(children, inputs.missing, columns, strict=True)
        ]
        node = lir.Join(self._id(), tuple(arranged), plan)
        return self._with_mfp(_Lowered(node, RAW, mfp.output_arity), temporal)

    def _reduce(self, rel: mir.Reduce, mfp: MapFilterProject) -> _Lowered:
        mfp, temporal = extract_temporal(mfp)
        child = self._lower(rel.input)
        form = child.forms.arranged[0] if child.forms.arranged else None
        key_val = reductions.key_val_plan(rel, child.arity, form)
        key_arity = len(rel.group_key)
        after = MapFilterProject.identity(mfp.input_arity)
        rest: MapFilterProject | None = mfp
        if self._features.enable_reduce_mfp_fusion:
            after, rest = reductions.mfp_after(mfp, key_arity)
        if temporal is not None:
            rest = temporal if rest is None else compose(rest, temporal).optimize()
        key = None if form is None else form.key
        plan = reductions.reduce_plan(rel)
        node = lir.Reduce(self._id(), child.plan, key, key_val, plan, after)
        form = reduce_form(key_arity, after.output_arity)
        forms = lir.AvailableCollections(raw=False, arranged=(form,))
        return self._with_mfp(_Lowered(node, forms, after.output_arity), rest)

    def _threshold(self, rel: mir.Threshold) -> _Lowered:
        child = self._lower(rel.input)
        form = arrangement_form([sc.Column(i) for i in range(child.arity)], child.arity)
        types = relation_type(rel.input, self._types).columns
        if form_by_key(child.forms, form.key) is None:
            child = self._arranged(child, [form], types, raw=False)
        node = lir.Threshold(self._id(), child.plan, form)
        forms = lir.AvailableCollections(raw=False, arranged=(form,), types=child.forms.types)
        return _Lowered(node, forms, child.arity)

    def _arrange_by(self, rel: mir.ArrangeBy) -> _Lowered:
        child = self._lower(rel.input)
        missing = [
            arrangement_form(key, child.arity)
            for key in rel.keys
            if form_by_key(child.forms, key) is None
        ]
        if not missing:
            return child
        types = relation_type(rel.input, self._types).columns
        return self._arranged(child, missing, types, child.forms.raw)


def relation_types_of_bindings(
    rel: mir.LetRec, outer: dict[int, RelationType]
) -> dict[int, RelationType]:
    """The types of a LetRec's bindings: as their Gets say, nullable and without keys; from the value if nobody reads
    the binding.
    """
    types: dict[int, RelationType] = {}
    for node in mir.walk(rel):
        if isinstance(node, mir.Get) and isinstance(node.id, int) and node.id in rel.ids:
            types.setdefault(node.id, node.typ)
    for local, value in zip(rel.ids, rel.values, strict=True):
        if local not in types:
            types[local] = relation_type(value, {**outer, **types})
    return types
