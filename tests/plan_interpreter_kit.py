"""A reference interpreter of MIR and LIR over small tables: slow, plain, for comparing plans.

Promise: relations are multisets (rows with multiplicities, zero left out); LIR is run by the row layouts that `mzsql.lir.plan` states, so
that lowering and rendering are held to the same words. Scalars are limited to integers and booleans, without errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from mzsql.expr import functions
from mzsql.expr import relation as mir
from mzsql.expr import scalar as sc
from mzsql.expr.mfp import MapFilterProject
from mzsql.lir import plan as lir
from mzsql.lir.forms import form_by_key, forms_of
from mzsql.repr.ids import GlobalId

Row = tuple[Any, ...]
Bag = Counter[Row]
Tables = Mapping[GlobalId, Bag]

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "eq": lambda a, b: a == b,
    "not_eq": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "lte": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "gte": lambda a, b: a >= b,
}


def scalar(expr: sc.Scalar, row: Row) -> Any:
    """The value of an expression over a row."""
    match expr:
        case sc.Column(index=index):
            return row[index]
        case sc.Literal(value=value):
            return value
        case sc.If(condition=c, then=t, otherwise=o):
            return scalar(t if scalar(c, row) is True else o, row)
        case sc.Call(func=func, args=args):
            return _call(func, [scalar(arg, row) for arg in args])
    msg = f"not interpreted: {expr}"
    raise ValueError(msg)


def _call(func: str, args: list[Any]) -> Any:
    match func:
        case "and":
            return False if False in args else (None if None in args else True)
        case "or":
            return True if True in args else (None if None in args else False)
        case "not":
            return None if args[0] is None else not args[0]
        case "is_null":
            return args[0] is None
        case "coalesce":
            return next((arg for arg in args if arg is not None), None)
    if None in args:
        return None
    if func.endswith("_to_bigint"):
        return args[0]
    return _BINARY[func.rsplit("_", 1)[0]](*args)


def aggregate(expr: sc.AggregateExpr, values: Sequence[tuple[Any, int]]) -> Any:
    """An aggregate over values with multiplicities."""
    known = [(value, diff) for value, diff in values if value is not None]
    if expr.distinct:
        counts: Counter[Any] = Counter()
        for value, diff in known:
            counts[value] += diff
        known = [(value, 1) for value, count in counts.items() if count > 0]
    match functions.aggregate(expr.func).name:
        case "count":
            return sum(diff for _, diff in known)
        case "sum":
            return sum(value * diff for value, diff in known) if known else None
        case "min":
            return min((value for value, _ in known), default=None)
        case "max":
            return max((value for value, _ in known), default=None)
    msg = f"not interpreted: {expr.func}"
    raise ValueError(msg)


def mfp_rows(mfp: MapFilterProject, bag: Bag) -> Bag:
    """An MFP over rows."""
    result: Bag = Counter()
    for row, diff in bag.items():
        full = list(row)
        for expr in mfp.expressions:
            full.append(scalar(expr, tuple(full)))
        if all(scalar(pred, tuple(full)) is True for _, pred in mfp.predicates):
            result[tuple(full[column] for column in mfp.projection)] += diff
    return clean(result)


def clean(bag: Bag) -> Bag:
    """Without the rows whose multiplicity is zero."""
    return Counter({row: diff for row, diff in bag.items() if diff})


def _add(bags: Iterable[Bag]) -> Bag:
    total: Bag = Counter()
    for bag in bags:
        for row, diff in bag.items():
            total[row] += diff
    return clean(total)


def _sort_key(order: Sequence[sc.ColumnOrder], row: Row) -> tuple[Any, ...]:
    parts: list[Any] = []
    for o in order:
        value = row[o.column]
        nulls = (value is None) == o.nulls_last
        parts.append((nulls, 0 if value is None else (-value if o.desc else value)))
    parts.extend((value is None, 0 if value is None else value) for value in row)
    return tuple(parts)


def _top_k(
    bag: Bag,
    group: Sequence[int],
    order: Sequence[sc.ColumnOrder],
    limit: sc.Scalar | None,
    offset: int,
) -> Bag:
    groups: dict[Row, list[Row]] = {}
    for row, diff in bag.items():
        groups.setdefault(tuple(row[c] for c in group), []).extend([row] * max(diff, 0))
    result: Bag = Counter()
    for members in groups.values():
        members.sort(key=lambda row: _sort_key(order, row))
        count = None if limit is None else scalar(limit, members[0])
        stop = None if count is None else offset + count
        result.update(members[offset:stop])
    return clean(result)


def _reduce(keyed: Iterable[tuple[Row, Row, int]], aggregates: Sequence[sc.AggregateExpr]) -> Bag:
    groups: dict[Row, list[tuple[Row, int]]] = {}
    for key, values, diff in keyed:
        groups.setdefault(key, []).append((values, diff))
    result: Bag = Counter()
    for key, members in groups.items():
        if sum(diff for _, diff in members) == 0:
            continue
        outputs = tuple(
            aggregate(a, [(values[i], diff) for values, diff in members])
            for i, a in enumerate(aggregates)
        )
        result[key + outputs] += 1
    return result


# --- MIR ----------------------------------------------------------------------------------------


def run_mir(rel: mir.Relation, tables: Tables, locals_: Mapping[int, Bag] | None = None) -> Bag:
    """The rows of a relation."""
    known = dict(locals_ or {})
    match rel:
        case mir.Get(id=gid):
            return known[gid] if isinstance(gid, int) else tables[gid]
        case mir.Let(id=local, value=value, body=body):
            return run_mir(body, tables, {**known, local: run_mir(value, tables, known)})
        case mir.LetRec():
            return run_mir(rel.body, tables, {**known, **_recursion(rel, tables, known)})
    inputs = [run_mir(part, tables, known) for part in mir.inputs(rel)]
    match rel:
        case mir.Constant(rows=rows):
            return _add(Counter({row: diff}) for row, diff in rows)
        case mir.Project(outputs=outputs):
            mfp = MapFilterProject.identity(mir.arity(rel.input)).project(outputs)
            return mfp_rows(mfp, inputs[0])
        case mir.Map(scalars=scalars):
            return mfp_rows(MapFilterProject.identity(mir.arity(rel.input)).map(scalars), inputs[0])
        case mir.Filter(predicates=predicates):
            mfp = MapFilterProject.identity(mir.arity(rel.input)).filter(predicates)
            return mfp_rows(mfp, inputs[0])
        case mir.Join(equivalences=classes):
            return _join_mir(inputs, classes)
        case mir.Reduce(group_key=key, aggregates=aggregates):
            keyed = (
                (
                    tuple(scalar(e, row) for e in key),
                    tuple(scalar(a.expr, row) for a in aggregates),
                    diff,
                )
                for row, diff in inputs[0].items()
            )
            return _reduce(keyed, aggregates)
        case mir.TopK(group_key=group, order_key=order, limit=limit, offset=offset):
            return _top_k(inputs[0], group, order, limit, offset)
        case mir.Negate():
            return Counter({row: -diff for row, diff in inputs[0].items()})
        case mir.Threshold():
            return Counter({row: diff for row, diff in inputs[0].items() if diff > 0})
        case mir.Union():
            return _add(inputs)
        case mir.ArrangeBy():
            return inputs[0]
    msg = f"not interpreted: {type(rel).__name__}"
    raise ValueError(msg)


def _recursion(rel: mir.LetRec, tables: Tables, known: dict[int, Bag]) -> dict[int, Bag]:
    """The bindings of a recursion after as many rounds as its limits allow, or when none changes any more."""
    found: dict[int, Bag] = {local: Counter() for local in rel.ids}
    limits = [limit[0] for limit in rel.limits if limit is not None]
    rounds = 0
    while not limits or rounds < min(limits):
        before = dict(found)
        for local, value in zip(rel.ids, rel.values, strict=True):
            found[local] = run_mir(value, tables, {**known, **found})
        rounds += 1
        if found == before:
            break
    return found


def _join_mir(inputs: Sequence[Bag], classes: Sequence[Sequence[sc.Scalar]]) -> Bag:
    product: Bag = Counter({(): 1})
    for part in inputs:
        product = Counter({a + b: d * e for a, d in product.items() for b, e in part.items()})
    return Counter(
        {
            row: diff
            for row, diff in product.items()
            if all(len({scalar(expr, row) for expr in cls}) == 1 for cls in classes)
        }
    )


# --- LIR ----------------------------------------------------------------------------------------


def run_lir(desc: lir.DataflowDescription, tables: Tables) -> Bag:
    """The raw rows of what a dataflow exports."""
    known: dict[GlobalId | int, Bag] = {
        index.on_id: tables[index.on_id] for index in desc.index_imports
    }
    for source in desc.source_imports:
        rows = tables[source.id]
        known[source.id] = rows if source.mfp is None else mfp_rows(source.mfp, rows)
    result: Bag = Counter()
    for obj in desc.objects:
        result = _run(obj.plan, known)
        known[obj.id] = result
    return result


def arranged(bag: Bag, form: lir.ArrangementForm) -> Bag:
    """The key ++ value rows of an arrangement."""
    return _add(
        Counter({(*(scalar(e, row) for e in form.key), *(row[c] for c in form.thinning)): diff})
        for row, diff in bag.items()
    )


def _read(
    child: lir.Plan, key: Sequence[sc.Scalar] | None, known: Mapping[GlobalId | int, Bag]
) -> Bag:
    """What a parent reads of a child: raw rows, or those of the arrangement by `key`."""
    rows = _run(child, known)
    forms = forms_of(child)
    if key is None:
        assert forms.raw, "raw rows are read of a node that has none"
        return rows
    form = form_by_key(forms, key)
    assert form is not None, "an arrangement is read that is not there"
    return arranged(rows, form)


def _run(plan: lir.Plan, known: Mapping[GlobalId | int, Bag]) -> Bag:
    match plan:
        case lir.Constant(rows=rows):
            return _add(Counter({row: diff}) for row, diff in rows)
        case lir.Get():
            return _get(plan, known[plan.id])
        case lir.Let(id=local, value=value, body=body):
            return _run(body, {**known, local: _run(value, known)})
        case lir.Mfp(input=child, mfp=mfp, input_key=key):
            return mfp_rows(mfp, _read(child, key, known))
        case lir.Join(inputs=inputs, plan=join):
            return _join(inputs, join, known)
        case lir.Reduce():
            return _reduce_lir(plan, known)
        case lir.TopK(input=child, plan=topk):
            given = _read(child, None, known)
            return _top_k(given, topk.group_key, topk.order_key, topk.limit, topk.offset)
        case lir.Negate(input=child):
            return Counter({row: -diff for row, diff in _read(child, None, known).items()})
        case lir.Threshold(input=child, ensure_arrangement=form):
            assert form_by_key(forms_of(child), form.key) is not None
            return Counter({row: diff for row, diff in _run(child, known).items() if diff > 0})
        case lir.Union(inputs=inputs):
            return _add(_read(child, None, known) for child in inputs)
        case lir.ArrangeBy(input=child, input_key=key, forms=forms):
            if key is None:
                assert forms_of(child).raw
            else:
                assert form_by_key(forms_of(child), key) is not None
            assert forms.raw or forms.arranged
            return _run(child, known)
    msg = f"not interpreted: {type(plan).__name__}"
    raise ValueError(msg)


def _get(plan: lir.Get, rows: Bag) -> Bag:
    match plan.plan:
        case lir.PassArrangements():
            return rows
        case lir.GetCollection(mfp=mfp):
            assert plan.keys.raw
            return mfp_rows(mfp, rows)
        case lir.GetArrangement(key=key, mfp=mfp):
            form = form_by_key(plan.keys, key)
            assert form is not None
            return mfp_rows(mfp, arranged(rows, form))


def _reduce_lir(plan: lir.Reduce, known: Mapping[GlobalId | int, Bag]) -> Bag:
    aggregates = reduce_aggregates(plan.plan)
    keyed = []
    for row, diff in _read(plan.input, plan.input_key, known).items():
        one: Bag = Counter({row: 1})
        (key,) = mfp_rows(plan.key_val.key_plan, one)
        (values,) = mfp_rows(plan.key_val.val_plan, one)
        keyed.append((key, values, diff))
    return mfp_rows(plan.mfp_after, _reduce(keyed, aggregates))


def reduce_aggregates(plan: lir.ReducePlan) -> list[sc.AggregateExpr]:
    """The aggregates of a plan in the order of its output."""
    match plan:
        case lir.ReduceDistinct():
            return []
        case lir.ReduceAccumulable(full=full):
            return list(full)
        case lir.ReduceHierarchical(aggregates=many):
            return list(many)
        case lir.ReduceBasic(aggregates=pairs):
            return [expr for _, expr in pairs]
        case lir.ReduceCollation(aggregate_types=types):
            of_kind: dict[str, list[sc.AggregateExpr]] = {
                "a": reduce_aggregates(plan.accumulable) if plan.accumulable else [],
                "h": reduce_aggregates(plan.hierarchical) if plan.hierarchical else [],
                "b": reduce_aggregates(plan.basic) if plan.basic else [],
            }
            return [of_kind[code].pop(0) for code in types]


def _join(
    inputs: Sequence[lir.Plan], plan: lir.JoinPlan, known: Mapping[GlobalId | int, Bag]
) -> Bag:
    if isinstance(plan, lir.LinearJoin):
        rows = _run(inputs[plan.source_relation], known)
        if plan.source_key is not None:
            forms = forms_of(inputs[plan.source_relation])
            assert form_by_key(forms, plan.source_key) is not None
        return _path(rows, plan, inputs, known)
    results: list[Bag] = []
    for path in plan.paths:
        rows = _read(inputs[path.source_relation], path.source_key, known)
        results.append(_path(rows, path, inputs, known))
    # At one time every path of a delta join finds the whole result.
    assert all(result == results[0] for result in results)
    return results[0]


def _path(
    rows: Bag,
    path: lir.LinearJoin | lir.DeltaPath,
    inputs: Sequence[lir.Plan],
    known: Mapping[GlobalId | int, Bag],
) -> Bag:
    if isinstance(path, lir.DeltaPath) and path.initial_closure is not None:
        rows = mfp_rows(path.initial_closure, rows)
    for stage in path.stages:
        other = _read(inputs[stage.lookup_relation], stage.lookup_key, known)
        width = len(stage.stream_key)
        met: Bag = Counter()
        for row, diff in rows.items():
            key = tuple(scalar(e, row) for e in stage.stream_key)
            kept = tuple(row[c] for c in stage.stream_thinning)
            for found, times in other.items():
                if found[:width] == key:
                    met[key + kept + found[width:]] += diff * times
        rows = mfp_rows(stage.closure, clean(met))
    return rows if path.final_closure is None else mfp_rows(path.final_closure, rows)
