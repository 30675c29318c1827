"""What a plan means, in plain Python over lists of rows: the independent answer that rendered statements are compared with."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import Call, Column, If, Literal, LiteralError, Scalar, walk
from mzsql.lir import plan as lir
from mzsql.lir.forms import form_by_key, forms_of

Rows = Counter


class EvalError(Exception):
    pass


def evaluate(expr: Scalar, row: tuple):
    match expr:
        case Column(index=i):
            return row[i]
        case Literal(value=v):
            return v
        case LiteralError(message=m):
            raise EvalError(m)
        case If(condition=c, then=t, otherwise=o):
            return evaluate(t if evaluate(c, row) else o, row)
        case Call(func="and", args=args):
            values = [evaluate(a, row) for a in args]
            return False if False in values else None if None in values else True
        case Call(func="or", args=args):
            values = [evaluate(a, row) for a in args]
            return True if True in values else None if None in values else False
        case Call(func="is_null", args=(a,)):
            return evaluate(a, row) is None
        case Call(func="integer_to_bigint", args=(a,)):
            return evaluate(a, row)
        case Call(func="not", args=(a,)):
            value = evaluate(a, row)
            return None if value is None else not value
        case Call(func=func, args=(a, b)):
            x, y = evaluate(a, row), evaluate(b, row)
            if x is None or y is None:
                return None
            return _binary(func.rsplit("_", 1)[0], x, y)
    raise AssertionError(expr)


def _binary(name: str, x, y):
    match name:
        case "eq":
            return x == y
        case "not_eq":
            return x != y
        case "lt":
            return x < y
        case "lte":
            return x <= y
        case "gt":
            return x > y
        case "gte":
            return x >= y
        case "add":
            return x + y
        case "mul":
            return x * y
        case "div":
            if y == 0:
                raise EvalError("division by zero")
            return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    raise AssertionError(name)


def _safe(expr: Scalar) -> bool:
    return not any(
        isinstance(n, LiteralError) or (isinstance(n, Call) and n.func.startswith("div_"))
        for n in walk(expr)
    )


@dataclass
class Result:
    rows: Counter = field(default_factory=Counter)
    types: tuple = ()


class Reference:
    """One evaluation of a dataflow; `errors` collects the messages of failing evaluations."""

    def __init__(self, desc: lir.DataflowDescription, inputs: Mapping[str, Counter]):
        self.desc = desc
        self.inputs = inputs
        self.errors: Counter = Counter()
        self.locals: dict = {}
        self.objects: dict = {}

    def run(self) -> Counter:
        for built in self.desc.objects:
            self.objects[built.id] = self.node(built.plan)
        return self.objects[self.desc.root.id]

    def mfp(self, mfp: MapFilterProject, row: tuple) -> tuple | None:
        """The row, None where it is dropped; raises where it fails."""
        values = list(row)
        failure = None
        pending = [p for _, p in mfp.predicates]
        columns: list = []
        for expr in mfp.expressions:
            try:
                columns.append(evaluate(expr, tuple(values)))
            except EvalError as error:
                failure = failure or error
                columns.append(None)
            values.append(columns[-1])
        safe_columns = self._safe_columns(mfp)
        for p in pending:
            if (
                self._safe_over(p, safe_columns, mfp.input_arity)
                and evaluate(p, tuple(values)) is not True
            ):
                return None
        if failure:
            raise failure
        for p in pending:
            if evaluate(p, tuple(values)) is not True:
                return None
        return tuple(values[c] for c in mfp.projection)

    @staticmethod
    def _safe_over(expr, safe_columns, arity):
        return _safe(expr) and all(
            safe_columns[n.index - arity]
            for n in walk(expr)
            if isinstance(n, Column) and n.index >= arity
        )

    def _safe_columns(self, mfp):
        made: list = []
        for expr in mfp.expressions:
            made.append(self._safe_over(expr, made, mfp.input_arity))
        return made

    def apply(self, mfp: MapFilterProject | None, rows: Counter) -> Counter:
        if mfp is None:
            return rows
        out: Counter = Counter()
        for row, diff in rows.items():
            try:
                made = self.mfp(mfp, row)
            except EvalError as error:
                self.errors[str(error)] += diff
                continue
            if made is not None:
                out[made] += diff
        return _clean(out)

    def keyed(self, rows: Counter, form: lir.ArrangementForm) -> Counter:
        out: Counter = Counter()
        for row, diff in rows.items():
            out[(*(evaluate(k, row) for k in form.key), *(row[c] for c in form.thinning))] += diff
        return out

    def read(self, plan: lir.Plan, key, rows: Counter) -> Counter:
        if key is None:
            return rows
        form = form_by_key(forms_of(plan), key)
        return self.keyed(rows, form)

    def node(self, plan: lir.Plan) -> Counter:
        match plan:
            case lir.Constant(rows=rows, error=error):
                if error is not None:
                    self.errors[error] += 1
                    return Counter()
                out: Counter = Counter()
                for row, diff in rows:
                    out[row] += diff
                return out
            case lir.Get(id=gid, plan=how, keys=keys):
                known = self.locals if isinstance(gid, int) else self.objects
                rows = known[gid] if gid in known else self.imported(gid)
                if isinstance(how, lir.GetCollection):
                    return self.apply(how.mfp, rows)
                if isinstance(how, lir.GetArrangement):
                    return self.apply(how.mfp, self.keyed(rows, form_by_key(keys, how.key)))
                return rows
            case lir.Let(id=local, value=value, body=body):
                self.locals[local] = self.node(value)
                return self.node(body)
            case lir.Mfp(input=below, mfp=mfp, input_key=key):
                return self.apply(mfp, self.read(below, key, self.node(below)))
            case lir.Negate(input=below):
                return Counter({row: -diff for row, diff in self.node(below).items()})
            case lir.Union(inputs=many):
                out = Counter()
                for below in many:
                    for row, diff in self.node(below).items():
                        out[row] += diff
                return _clean(out)
            case lir.Threshold(input=below):
                return Counter({r: d for r, d in self.node(below).items() if d > 0})
            case lir.ArrangeBy(input=below):
                return self.node(below)
            case lir.Join():
                return self.join(plan)
            case lir.Reduce():
                return self.reduce(plan)
            case lir.TopK():
                return self.top_k(plan)
            case lir.FlatMap():
                return self.flat_map(plan)
        raise AssertionError(plan)

    def imported(self, gid) -> Counter:
        rows = self.inputs[gid]
        mfp = next((s.mfp for s in self.desc.source_imports if s.id == gid), None)
        self.objects[gid] = self.apply(mfp, rows)
        return self.objects[gid]

    def flat_map(self, plan: lir.FlatMap) -> Counter:
        assert plan.func == "generate_series_integer"
        out: Counter = Counter()
        for row, diff in self.node(plan.input).items():
            try:
                start, stop = (evaluate(e, row) for e in plan.exprs)
            except EvalError as error:
                self.errors[str(error)] += diff
                continue
            if start is None or stop is None:
                continue
            for n in range(start, stop + 1):
                out[(*row, n)] += diff
        return self.apply(plan.mfp_after, out)

    def join(self, plan: lir.Join) -> Counter:
        inputs = [self.node(below) for below in plan.inputs]
        delta = isinstance(plan.plan, lir.DeltaJoin)
        path = plan.plan.paths[0] if delta else plan.plan
        rows = inputs[path.source_relation]
        if delta:
            form = form_by_key(forms_of(plan.inputs[path.source_relation]), path.source_key)
            rows = self.keyed(rows, form)
        closures = _Carrying(self) if delta else self.apply
        rows = closures(path.initial_closure if delta else None, rows)
        for stage in path.stages:
            form = form_by_key(forms_of(plan.inputs[stage.lookup_relation]), stage.lookup_key)
            lookup = defaultdict(list)
            for row, diff in self.keyed(inputs[stage.lookup_relation], form).items():
                k = len(form.key)
                lookup[row[:k]].append((row[k:], diff))
            out: Counter = Counter()
            for row, diff in rows.items():
                key = tuple(evaluate(e, row) for e in stage.stream_key)
                for value, times in lookup[key]:
                    made = (*key, *(row[c] for c in stage.stream_thinning), *value)
                    out[made if not delta else closures.keep(made, row)] += diff * times
            if delta:
                closures.move(stage)
            rows = closures(stage.closure, out)
        rows = closures(path.final_closure, rows)
        return closures.settle(rows) if delta else rows

    def reduce(self, plan: lir.Reduce) -> Counter:
        rows = self.read(plan.input, plan.input_key, self.node(plan.input))
        groups: dict = defaultdict(Counter)
        exprs = _aggregates(plan.plan)
        for row, diff in rows.items():
            try:
                key = self.mfp(plan.key_val.key_plan, row)
                value = self.mfp(plan.key_val.val_plan, row)
            except EvalError as error:
                self.errors[str(error)] += diff
                continue
            groups[key][value] += diff
        out: Counter = Counter()
        for key, values in groups.items():
            if sum(values.values()) <= 0:
                continue
            made = tuple(
                _aggregate(a, Counter({v[i]: 0 for v in values}) | _column(values, i))
                for i, a in enumerate(exprs)
            )
            out[(*key, *made)] += 1
        return self.apply(plan.mfp_after, out)

    def top_k(self, plan: lir.TopK) -> Counter:
        groups: dict = defaultdict(list)
        k = plan.plan
        for row, diff in self.node(plan.input).items():
            if diff > 0:
                groups[tuple(row[c] for c in k.group_key)] += [row] * diff
        out: Counter = Counter()
        for rows in groups.values():
            rows.sort(key=lambda row: tuple((v is None, v or 0) for v in row))
            for order in reversed(k.order_key):
                rows.sort(
                    key=lambda row, o=order: (
                        (row[o.column] is None) == o.nulls_last,
                        0 if row[o.column] is None else -row[o.column] if o.desc else row[o.column],
                    )
                )
            limit = None if k.limit is None else evaluate(k.limit, rows[0])
            end = None if limit is None else k.offset + max(limit, 0)
            for row in rows[k.offset : end]:
                out[row] += 1
        return out


class _Row(tuple):
    """A row on its way through a delta join, with the failure it carries: only whole rows fail."""

    failure: str | None = None

    def __new__(cls, values, failure=None):
        made = super().__new__(cls, values)
        made.failure = failure
        return made

    def __eq__(self, other):
        return tuple.__eq__(self, other) and self.failure == getattr(other, "failure", None)

    def __hash__(self):
        return hash((tuple(self), self.failure))


class _Carrying:
    """Closures of a delta join: predicates over what can fail wait for those that cannot."""

    def __init__(self, reference: Reference):
        self.reference = reference
        self.tainted: list[bool] | None = None

    @staticmethod
    def keep(made, row):
        return _Row(made, getattr(row, "failure", None))

    def move(self, stage):
        tainted = self.tainted or []
        was = lambda c: c < len(tainted) and tainted[c]  # noqa: E731
        keys = [
            any(was(n.index) for n in walk(e) if isinstance(n, Column)) for e in stage.stream_key
        ]
        self.tainted = [*keys, *(was(c) for c in stage.stream_thinning)]

    def __call__(self, mfp, rows):
        if mfp is None:
            return rows
        tainted = list(self.tainted or [])
        tainted += [False] * (mfp.input_arity - len(tainted))

        def risky(expr):
            return not _safe(expr) or any(
                tainted[n.index] for n in walk(expr) if isinstance(n, Column)
            )

        for expr in mfp.expressions:
            tainted.append(risky(expr))
        out: Counter = Counter()
        for row, diff in rows.items():
            made = self._row(mfp, row, risky)
            if made is not None:
                out[made] += diff
        self.tainted = [tainted[c] for c in mfp.projection]
        return out

    @staticmethod
    def _row(mfp, row, risky):
        failure = getattr(row, "failure", None)
        values = list(row)
        for expr in mfp.expressions:
            try:
                values.append(evaluate(expr, tuple(values)))
            except EvalError as error:
                failure = failure or str(error)
                values.append(None)
        for _, p in mfp.predicates:
            if risky(p):
                if failure:
                    continue
                try:
                    held = evaluate(p, tuple(values))
                except EvalError as error:
                    failure = str(error)
                    continue
            else:
                held = evaluate(p, tuple(values))
            if held is not True:
                return None
        return _Row((values[c] for c in mfp.projection), failure)

    def settle(self, rows):
        out: Counter = Counter()
        for row, diff in rows.items():
            if getattr(row, "failure", None):
                self.reference.errors[row.failure] += diff
            else:
                out[tuple(row)] += diff
        return _clean(out)


def _column(values: Counter, i: int) -> Counter:
    out: Counter = Counter()
    for v, d in values.items():
        out[v[i]] += d
    return out


def _aggregates(plan) -> tuple:
    match plan:
        case lir.ReduceDistinct():
            return ()
        case lir.ReduceAccumulable(full=full):
            return full
        case lir.ReduceHierarchical(aggregates=a):
            return a
        case lir.ReduceBasic(aggregates=pairs):
            return tuple(e for _, e in pairs)
        case lir.ReduceCollation(aggregate_types=codes, accumulable=a, hierarchical=h, basic=b):
            queues = {
                "a": iter(a.full if a else ()),
                "h": iter(h.aggregates if h else ()),
                "b": iter(_aggregates(b) if b else ()),
            }
            return tuple(next(queues[c]) for c in codes)


def _aggregate(expr, values: Counter):
    there = [(v, d) for v, d in values.items() if v is not None and d > 0]
    if expr.distinct:
        there = [(v, 1) for v, _ in there]
    name = expr.func.split("_")[0]
    match name:
        case "count":
            return sum(d for _, d in there)
        case "sum":
            return sum(v * d for v, d in there) if there else None
        case "min":
            return min((v for v, _ in there), default=None)
        case "max":
            return max((v for v, _ in there), default=None)
        case "array":
            everything = [(v, d) for v, d in values.items() if d > 0]
            return tuple(v for v, d in everything for _ in range(d))
    raise AssertionError(name)


def _clean(rows: Counter) -> Counter:
    return Counter({row: diff for row, diff in rows.items() if diff})


def contents(desc: lir.DataflowDescription, inputs: Mapping[str, Counter]) -> tuple[Counter, set]:
    """The export's rows and the messages of errors."""
    reference = Reference(desc, inputs)
    rows = _clean(reference.run())
    return rows, {m for m, d in reference.errors.items() if d > 0}
