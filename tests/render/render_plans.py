"""Plans for the random tests, built by hand as lowering would build them."""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr import relation as mir
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import AggregateExpr, Call, Column, ColumnOrder, Literal, Scalar
from mzsql.lir import plan as lir
from mzsql.lir.forms import arrangement_form, form_by_key, forms_of
from mzsql.lir.joins import JoinInputs, plan_join
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import BIGINT, BOOLEAN, INTEGER, ColumnType, RelationType, SqlType

INT = ColumnType(INTEGER)
BIG = ColumnType(BIGINT)
RAW = lir.AvailableCollections(raw=True)
c = Column


def lit(value: int) -> Literal:
    return Literal(value, INTEGER)


def call(func: str, *args: Scalar, typ: SqlType = INTEGER) -> Call:
    return Call(func, args, typ)


def gt(a: Scalar, b: Scalar) -> Call:
    return call("gt_integer", a, b, typ=BOOLEAN)


def lt(a: Scalar, b: Scalar) -> Call:
    return call("lt_integer", a, b, typ=BOOLEAN)


def add(a: Scalar, b: Scalar) -> Call:
    return call("add_integer", a, b)


def div(a: Scalar, b: Scalar) -> Call:
    return call("div_integer", a, b)


def is_null(a: Scalar) -> Call:
    return call("is_null", a, typ=BOOLEAN)


def mfp(
    arity: int,
    exprs: Sequence[Scalar] = (),
    preds: Sequence[Scalar] = (),
    out: Sequence[int] | None = None,
) -> MapFilterProject:
    outputs = tuple(range(arity + len(exprs))) if out is None else tuple(out)
    end = arity + len(exprs)
    return MapFilterProject(arity, tuple(exprs), tuple((end, p) for p in preds), outputs)


class Build:
    """Nodes with ids in order."""

    def __init__(self) -> None:
        self.next = 0

    def id(self) -> int:
        self.next += 1
        return self.next - 1

    def get(self, gid: str, arity: int = 2, plan: MapFilterProject | None = None) -> lir.Get:
        how = lir.PassArrangements() if plan is None else lir.GetCollection(plan)
        return lir.Get(self.id(), GlobalId(gid), RAW, how, (INT,) * arity)

    def local(self, number: int, keys=RAW, columns=(INT, INT)) -> lir.Get:
        return lir.Get(self.id(), number, keys, lir.PassArrangements(), tuple(columns))

    def indexed(self, gid: str, key: Sequence[Scalar], arity: int = 2) -> lir.Get:
        forms = lir.AvailableCollections(False, (arrangement_form(key, arity),))
        return lir.Get(self.id(), GlobalId(gid), forms, lir.PassArrangements(), (INT,) * arity)

    def mfp(self, below: lir.Plan, plan: MapFilterProject, key=None) -> lir.Mfp:
        return lir.Mfp(self.id(), below, plan, key)

    def by(self, below: lir.Plan, arity: int, *keys: Sequence[Scalar]) -> lir.ArrangeBy:
        forms = tuple(arrangement_form(key, arity) for key in keys)
        return lir.ArrangeBy(self.id(), below, None, lir.AvailableCollections(False, forms))

    def raw(self, below: lir.Plan, key: Sequence[Scalar]) -> lir.ArrangeBy:
        return lir.ArrangeBy(self.id(), below, tuple(key), RAW)

    def join(
        self,
        inputs: Sequence[lir.Plan],
        arities: Sequence[int],
        how: mir.Implementation,
        equivalences: Sequence[Sequence[Scalar]],
        plan: MapFilterProject | None = None,
    ) -> lir.Join:
        """As lowering plans it; inputs that lack an arrangement get an ArrangeBy."""
        columns = [(INT,) * n for n in arities]
        rels = tuple(mir.Constant((), RelationType(cs)) for cs in columns)
        join = mir.Join(rels, tuple(tuple(e) for e in equivalences), how)
        sides = JoinInputs([forms_of(i) for i in inputs], columns)
        total = MapFilterProject.identity(sum(arities)) if plan is None else plan
        made = plan_join(join, total, sides)
        ready = [
            lir.ArrangeBy(
                self.id(),
                i,
                None,
                lir.AvailableCollections(False, (*forms_of(i).arranged, *missing)),
            )
            if missing
            else i
            for i, missing in zip(inputs, sides.missing, strict=True)
        ]
        return lir.Join(self.id(), tuple(ready), made)

    def reduce(
        self,
        below: lir.Plan,
        arity: int,
        key: Sequence[Scalar],
        plan: lir.ReducePlan,
        values: Sequence[Scalar],
        after: MapFilterProject | None = None,
    ) -> lir.Reduce:
        make = lambda exprs: mfp(arity, exprs, out=range(arity, arity + len(exprs)))  # noqa: E731
        width = len(key) + len(values)
        return lir.Reduce(
            self.id(),
            below,
            None,
            lir.KeyValPlan(make(key), make(values)),
            plan,
            after or MapFilterProject.identity(width),
        )

    def top_k(self, below: lir.Plan, **how) -> lir.TopK:
        fields = {"kind": "Basic", "offset": 0, "arity": 2, "limit": Literal(2, BIGINT)} | how
        return lir.TopK(self.id(), below, lir.TopKPlan(**fields))


def agg(func: str, expr: Scalar, *, distinct: bool = False) -> AggregateExpr:
    typ = BIGINT if func.startswith(("count", "sum")) else INTEGER
    return AggregateExpr(func, expr, distinct, typ, nullable=func != "count")


def accumulable(*aggs: AggregateExpr) -> lir.ReduceAccumulable:
    indexed = [lir.IndexedAggregate(i, i, a) for i, a in enumerate(aggs)]
    return lir.ReduceAccumulable(
        tuple(aggs),
        tuple(i for i in indexed if not i.expr.distinct),
        tuple(i for i in indexed if i.expr.distinct),
    )


def flow(
    plan: lir.Plan,
    sources: Sequence[str] = ("u1", "u2", "u3"),
    *,
    arity: int = 2,
    typ: RelationType | None = None,
    indexes: Sequence[lir.IndexImport] = (),
    export: lir.Export | None = None,
    imports: dict | None = None,
    before: Sequence[lir.BuildDesc] = (),
) -> lir.DataflowDescription:
    inputs = RelationType((INT,) * arity)
    gid = GlobalId("u9")
    return lir.DataflowDescription(
        tuple(lir.SourceImport(GlobalId(s), inputs, (imports or {}).get(s)) for s in sources),
        tuple(indexes),
        (*before, lir.BuildDesc(gid, plan, typ or RelationType((INT, INT)))),
        export or lir.MaterializedViewExport(gid),
    )


def differential(start: int, key, *order) -> mir.Differential:
    steps = tuple(mir.JoinInputOrder(i, tuple(k)) for i, k in order)
    return mir.Differential(start, None if key is None else tuple(key), "", steps)


def delta(*orders) -> mir.DeltaQuery:
    return mir.DeltaQuery(
        tuple(tuple(mir.JoinInputOrder(i, tuple(k)) for i, k in order) for order in orders)
    )


def chain_delta(b: Build, inputs: Sequence[lir.Plan], plan=None) -> lir.Join:
    """u1.c1 = u2.c0, u2.c1 = u3.c0: customer, orders, lineitem."""
    how = delta(
        [(1, [c(0)]), (2, [c(0)])],
        [(0, [c(1)]), (2, [c(0)])],
        [(1, [c(1)]), (0, [c(1)])],
    )
    return b.join(inputs, (2, 2, 2), how, [[c(1), c(2)], [c(3), c(4)]], plan)


def row_wise() -> lir.DataflowDescription:
    b = Build()
    mapped = b.mfp(
        b.get("u1"), mfp(2, [div(c(0), c(1)), add(c(2), c(2))], [gt(c(0), lit(0))], [2, 3])
    )
    get = b.get(
        "u2", plan=mfp(2, [add(c(0), lit(1))], [call("not", is_null(c(1)), typ=BOOLEAN)], [2, 1])
    )
    union = lir.Union(b.id(), (mapped, get, lir.Negate(b.id(), get_negated(b))))
    return flow(union, imports={"u3": mfp(2, (), [lt(c(0), lit(2))])})


def get_negated(b: Build) -> lir.Plan:
    return b.mfp(b.get("u3"), mfp(2, [div(lit(7), c(0))], out=[2, 1]))


def linear_two() -> lir.DataflowDescription:
    b = Build()
    plan = mfp(4, [div(c(0), c(3))], [gt(c(0), lit(0))], [4, 1])
    join = b.join(
        [b.get("u1"), b.get("u2")],
        (2, 2),
        differential(0, [c(1)], (1, [c(0)])),
        [[c(1), c(2)]],
        plan,
    )
    return flow(join, ("u1", "u2"))


def linear_three() -> lir.DataflowDescription:
    b = Build()
    how = differential(1, None, (0, [c(1)]), (2, [c(0)]))
    inputs = [b.get("u1"), b.get("u2"), b.get("u3")]
    plan = mfp(6, [add(c(0), c(5))], [gt(c(5), c(0))], [6, 1])
    return flow(b.join(inputs, (2, 2, 2), how, [[c(1), c(2)], [c(3), c(4)]], plan))


def cross() -> lir.DataflowDescription:
    b = Build()
    how = differential(0, [], (1, []))
    return flow(
        b.join([b.get("u1"), b.get("u2")], (2, 2), how, [], mfp(4, (), [lt(c(0), c(2))], [0, 3])),
        ("u1", "u2"),
    )


def delta_chain() -> lir.DataflowDescription:
    b = Build()
    inputs = [b.mfp(b.get("u1"), mfp(2, (), [gt(c(0), lit(0))])), b.get("u2"), b.get("u3")]
    return flow(chain_delta(b, inputs, mfp(6, [add(c(0), c(5))], [lt(c(0), c(5))], [6, 1])))


def delta_failing() -> lir.DataflowDescription:
    b = Build()
    inputs = [b.get("u1"), b.get("u2"), b.get("u3")]
    return flow(
        chain_delta(
            b, inputs, mfp(6, [div(c(0), c(2)), div(c(5), c(3))], [gt(c(6), lit(0))], [6, 7])
        )
    )


def delta_self() -> lir.DataflowDescription:
    """The same collection three times, through a Let."""
    b = Build()
    value = b.by(b.get("u1"), 2, [c(0)], [c(1)])
    how = delta(
        [(1, [c(0)]), (2, [c(0)])],
        [(0, [c(0)]), (2, [c(0)])],
        [(0, [c(0)]), (1, [c(0)])],
    )
    keys = value.forms
    join = b.join(
        [b.local(0, keys) for _ in range(3)],
        (2, 2, 2),
        how,
        [[c(0), c(2), c(4)]],
        mfp(6, (), (), [1, 5]),
    )
    return flow(lir.Let(b.id(), 0, value, join), ("u1",))


def null_safe_keys() -> lir.DataflowDescription:
    """Two key columns; expressions as keys."""
    b = Build()
    how = differential(0, [c(0), add(c(1), lit(1))], (1, [c(0), c(1)]))
    join = b.join(
        [b.get("u1"), b.get("u2")],
        (2, 2),
        how,
        [[c(0), c(2)], [add(c(1), lit(1)), c(3)]],
        mfp(4, (), (), [0, 3]),
    )
    return flow(join, ("u1", "u2"))


def sums() -> lir.DataflowDescription:
    b = Build()
    aggs = accumulable(
        agg("sum_integer", c(1)), agg("count", c(1)), agg("count", Literal(True, BOOLEAN))
    )
    after = mfp(4, (), [call("gt_bigint", c(3), Literal(1, BIGINT), typ=BOOLEAN)])
    reduce = b.reduce(b.get("u1"), 2, [c(0)], aggs, [c(1), c(1), Literal(True, BOOLEAN)], after)
    return flow(reduce, ("u1",), typ=RelationType((INT, BIG, BIG, BIG)))


def sums_global() -> lir.DataflowDescription:
    b = Build()
    aggs = accumulable(agg("sum_integer", c(1)), agg("count", c(1)))
    return flow(
        b.reduce(b.get("u1"), 2, [], aggs, [c(1), c(1)]), ("u1",), typ=RelationType((BIG, BIG))
    )


def sums_distinct() -> lir.DataflowDescription:
    b = Build()
    aggs = accumulable(
        agg("sum_integer", c(1), distinct=True),
        agg("sum_integer", c(1)),
        agg("count", c(1), distinct=True),
    )
    reduce = b.reduce(b.get("u1"), 2, [c(0)], aggs, [c(1), div(lit(6), c(1)), c(1)])
    return flow(reduce, ("u1",), typ=RelationType((INT, BIG, BIG, BIG)))


def distinct() -> lir.DataflowDescription:
    b = Build()
    return flow(b.reduce(b.get("u1"), 2, [c(1), c(0)], lir.ReduceDistinct(), []), ("u1",))


def extremes() -> lir.DataflowDescription:
    b = Build()
    plan = lir.ReduceHierarchical(
        (agg("min_integer", c(1)), agg("max_integer", c(1))), (0, 0), (16,)
    )
    after = mfp(3, (), [gt(c(2), lit(0))], [0, 1, 2])
    reduce = b.reduce(b.get("u1"), 2, [c(0)], plan, [c(1), div(c(1), c(0))], after)
    return flow(reduce, ("u1",), typ=RelationType((INT, INT, INT)))


def collation() -> lir.DataflowDescription:
    b = Build()
    values = [agg("sum_integer", c(1)), agg("max_integer", c(1)), agg("count", c(1), distinct=True)]
    plan = lir.ReduceCollation(
        ("a", "h", "a"),
        accumulable(values[0], values[2]),
        lir.ReduceHierarchical((values[1],), (1,), (16,)),
        None,
    )
    reduce = b.reduce(b.get("u1"), 2, [c(0)], plan, [c(1), c(1), c(1)])
    return flow(reduce, ("u1",), typ=RelationType((INT, BIG, INT, BIG)))


def top_two() -> lir.DataflowDescription:
    b = Build()
    top = b.top_k(b.get("u1"), group_key=(0,), order_key=(ColumnOrder(1, True, False),), offset=1)
    return flow(top, ("u1",))


def top_global() -> lir.DataflowDescription:
    b = Build()
    source = b.mfp(b.get("u1"), mfp(2, [div(c(1), c(0))], out=[2, 1]))
    top = b.top_k(
        source,
        group_key=(),
        order_key=(ColumnOrder(1), ColumnOrder(0, True, True)),
        limit=Literal(3, BIGINT),
    )
    return flow(top, ("u1",))


def top_second_group() -> lir.DataflowDescription:
    b = Build()
    square = call(
        "mul_integer", c(1), c(1)
    )  # of a query that is answered once, a negative limit is an error
    top = b.top_k(
        b.get("u1"),
        group_key=(1,),
        order_key=(),
        limit=call("integer_to_bigint", square, typ=BIGINT),
    )
    return flow(b.mfp(top, mfp(2, (), (), [1, 0])), ("u1",))


def except_all() -> lir.DataflowDescription:
    b = Build()
    union = lir.Union(
        b.id(), (b.get("u1"), lir.Negate(b.id(), b.get("u2"))), consolidate_output=True
    )
    form = arrangement_form([c(0), c(1)], 2)
    arranged = b.by(union, 2, [c(0), c(1)])
    threshold = lir.Threshold(b.id(), arranged, form)
    return flow(b.raw(threshold, form.key), ("u1", "u2"))


def having_join() -> lir.DataflowDescription:
    """Join of a collection with the groups of another that are large: a Reduce's output is looked up by its key."""
    b = Build()
    after = mfp(2, (), [call("gt_bigint", c(1), Literal(2, BIGINT), typ=BOOLEAN)], [0])
    groups = b.reduce(b.get("u2"), 2, [c(0)], accumulable(agg("sum_integer", c(1))), [c(1)], after)
    how = delta(
        [(1, [c(0)]), (2, [c(0)])],
        [(0, [c(1)]), (2, [c(0)])],
        [(0, [c(1)]), (1, [c(0)])],
    )
    join = b.join(
        [b.get("u1"), b.get("u2"), groups],
        (2, 2, 1),
        how,
        [[c(1), c(2), c(4)]],
        mfp(5, (), (), [0, 3]),
    )
    total = b.reduce(join, 2, [c(0)], accumulable(agg("count", c(1))), [c(1)])
    top = b.top_k(b.raw(total, [c(0)]), group_key=(), order_key=(ColumnOrder(1, True, False),))
    return flow(top, ("u1", "u2"), typ=RelationType((INT, BIG)))


def extreme_join() -> lir.DataflowDescription:
    """A minimum looked up by its group, in a linear join with two stages."""
    b = Build()
    least = b.reduce(
        b.get("u2"),
        2,
        [c(0)],
        lir.ReduceHierarchical((agg("min_integer", c(1)),), (0,), None),
        [c(1)],
    )
    how = differential(0, None, (1, [c(0)]), (2, [c(1)]))
    join = b.join(
        [b.get("u1"), least, b.get("u3")],
        (2, 2, 2),
        how,
        [[c(1), c(2)], [c(3), c(5)]],
        mfp(6, (), (), [0, 4]),
    )
    return flow(join)


def left_join() -> lir.DataflowDescription:
    """u1 LEFT JOIN u2: matches, and the rows of u1 less those that have one, padded."""
    b = Build()
    join = b.join(
        [b.get("u1"), b.get("u2")],
        (2, 2),
        differential(0, [c(1)], (1, [c(0)])),
        [[c(1), c(2)]],
        mfp(4, (), [call("not", is_null(c(1)), typ=BOOLEAN)], [0, 1, 3]),
    )
    matched = b.reduce(b.local(0, columns=(INT,) * 3), 3, [c(0), c(1)], lir.ReduceDistinct(), [])
    semi = b.join(
        [matched, b.get("u1")],
        (2, 2),
        differential(1, [c(0), c(1)], (0, [c(0), c(1)])),
        [[c(0), c(2)], [c(1), c(3)]],
        mfp(4, (), (), [2, 3]),
    )
    missing = lir.Union(b.id(), (lir.Negate(b.id(), semi), b.get("u1")), consolidate_output=True)
    padded = b.mfp(missing, mfp(2, [Literal(None, INTEGER)], out=[0, 1, 2]))
    union = lir.Union(b.id(), (padded, b.local(0, columns=(INT,) * 3)))
    return flow(lir.Let(b.id(), 0, join, union), ("u1", "u2"), typ=RelationType((INT,) * 3))


def series() -> lir.DataflowDescription:
    b = Build()
    flat = lir.FlatMap(
        b.id(),
        b.get("u1"),
        None,
        (c(0), div(c(1), c(0))),
        "generate_series_integer",
        RelationType((ColumnType(INTEGER, False),)),
        mfp(3, (), [gt(c(2), lit(0))], [2, 1]),
    )
    return flow(flat, ("u1",))


def constants() -> lir.DataflowDescription:
    b = Build()
    rows = lir.Constant(b.id(), (((1, 2), 1), ((2, None), 2), ((None, None), 1)), None, (INT, INT))
    join = b.join(
        [b.get("u1"), rows],
        (2, 2),
        differential(1, [c(0)], (0, [c(0)])),
        [[c(0), c(2)]],
        mfp(4, (), (), [1, 3]),
    )
    more = lir.Constant(b.id(), (((7, 7), 1),), None, (INT, INT))
    return flow(lir.Union(b.id(), (join, more)), ("u1",))


def indexed() -> lir.DataflowDescription:
    """Reads an index by its key and raw, and exports an index."""
    b = Build()
    imported = lir.IndexImport(GlobalId("u5"), GlobalId("u4"), (c(1),), RelationType((INT, INT)))
    join = b.join(
        [b.get("u1"), b.indexed("u4", [c(1)])],
        (2, 2),
        differential(0, None, (1, [c(1)])),
        [[c(0), c(3)]],
        mfp(4, (), (), [1, 2]),
    )
    get = lir.Get(
        b.id(),
        GlobalId("u4"),
        lir.AvailableCollections(False, (arrangement_form([c(1)], 2),)),
        # Over key ++ value: the second column, then the first.
        lir.GetArrangement((c(1),), None, mfp(2, (), [gt(c(0), lit(0))], [1, 0])),
        (INT, INT),
    )
    union = lir.Union(b.id(), (join, get))
    root = b.by(union, 2, [c(1)])
    export = lir.IndexExport(GlobalId("u8"), GlobalId("u9"), (c(1),))
    return flow(root, ("u1",), indexes=[imported], export=export)


PLANS = {
    f.__name__: f
    for f in (
        row_wise,
        linear_two,
        linear_three,
        cross,
        delta_chain,
        delta_failing,
        delta_self,
        null_safe_keys,
        sums,
        sums_global,
        sums_distinct,
        distinct,
        extremes,
        collation,
        top_two,
        top_global,
        top_second_group,
        except_all,
        having_join,
        extreme_join,
        left_join,
        series,
        constants,
        indexed,
    )
}

__all__ = ["PLANS", "Build", "flow", "form_by_key"]
