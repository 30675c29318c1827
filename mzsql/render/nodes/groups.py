"""Aggregates: partial sums, what rows add to them, and a group's output row.

Promise: pure pieces of SQL, the same for a step, a hydration and a one-shot query. An accumulable aggregate is a few
additive columns; one more column counts the group's rows, so a group exists while that is positive. Several kinds of
aggregates in one Reduce, and those that are not accumulable, are computed from the group's rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlglot import expressions as exp

from mzsql.expr import functions
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.table import AggregateFunc, Engine, Sql
from mzsql.expr.mfp import MapFilterProject
from mzsql.expr.scalar import AggregateExpr, permute
from mzsql.lir import plan as lir
from mzsql.lir.forms import form_by_key, forms_of
from mzsql.render.nodes.collection import Collection, within
from mzsql.render.nodes.naming import over_raw
from mzsql.render.nodes.renderer import Renderer
from mzsql.render.statement import (
    DIFF,
    ERROR,
    Ast,
    big,
    col,
    columns_of,
    named,
    no_error,
    null_of,
    ordered,
    select,
    subquery,
    window,
)
from mzsql.render.updates import repeated
from mzsql.repr.types import BIGINT, NUMERIC, ColumnType, SqlType

COUNT = ColumnType(BIGINT, nullable=False)


@dataclass(frozen=True)
class Aggregate:
    """One aggregate of a Reduce: its argument is in column `argument` of key ++ values, its partial sums begin at
    `start`.
    """

    expr: AggregateExpr
    func: AggregateFunc
    argument: int
    argument_type: ColumnType
    start: int
    accumulators: tuple[SqlType, ...]

    @property
    def typ(self) -> ColumnType:
        """The type of the result."""
        return ColumnType(self.expr.typ, self.expr.nullable)


@dataclass(frozen=True)
class Groups:
    """What a Reduce computes.

    Attributes:
        row: the MFP from the input's raw row to key ++ values.
        key: types of the key.
        values: types of the values.
        aggregates: in output order.
        accumulable: whether all of them are kept as partial sums.
        after: the MFP over key ++ aggregates.
    """

    row: MapFilterProject
    key: tuple[ColumnType, ...]
    values: tuple[ColumnType, ...]
    aggregates: tuple[Aggregate, ...]
    accumulable: bool
    after: MapFilterProject

    @property
    def arity(self) -> int:
        """Number of key columns."""
        return len(self.key)

    @property
    def sums(self) -> tuple[ColumnType, ...]:
        """Types of the partial sums; the last one counts rows."""
        parts = [ColumnType(t) for a in self.aggregates for t in a.accumulators]
        return (*parts, COUNT)

    @property
    def output(self) -> tuple[ColumnType, ...]:
        """Types of key ++ aggregates."""
        return (*self.key, *(a.typ for a in self.aggregates))

    @property
    def distinct(self) -> tuple[tuple[int, Aggregate], ...]:
        """The DISTINCT aggregates, with their positions."""
        return tuple((i, a) for i, a in enumerate(self.aggregates) if a.expr.distinct)


def plan_groups(
    node: lir.Reduce, columns: Sequence[ColumnType], types: Sequence[ColumnType]
) -> Groups:
    """Analyse a Reduce over an input with raw `columns`; `types` are those of its key ++ values (the output of
    `key_values`).
    """
    row = key_values(node, len(columns))
    arity = node.key_val.key_plan.output_arity
    exprs = aggregate_exprs(node.plan)
    start = 0
    aggregates: list[Aggregate] = []
    for i, expr in enumerate(exprs):
        func = functions.aggregate(expr.func)
        parts = accumulator_types(func, types[arity + i].type)
        aggregates.append(Aggregate(expr, func, arity + i, types[arity + i], start, parts))
        start += len(parts)
    accumulable = isinstance(node.plan, lir.ReduceDistinct | lir.ReduceAccumulable)
    return Groups(
        row,
        tuple(types[:arity]),
        tuple(types[arity:]),
        tuple(aggregates),
        accumulable,
        node.mfp_after,
    )


def accumulator_types(func: AggregateFunc, argument: SqlType) -> tuple[SqlType, ...]:
    """The types of an aggregate's partial sums, given its argument's type."""
    if func.kind != "accumulable":
        return ()
    # A numeric without a scale stands for the argument's.
    return tuple(
        SqlType("numeric", scale=argument.effective_scale) if typ == NUMERIC else typ
        for _, typ in func.accumulators
    )


def key_values(node: lir.Reduce, arity: int) -> MapFilterProject:
    """The MFP from raw rows to key ++ values."""
    key, val = node.key_val.key_plan, node.key_val.val_plan
    if node.input_key is not None:
        form = form_by_key(forms_of(node.input), node.input_key)
        assert form is not None, "a Reduce reads an arrangement that its input does not have"
        key, val = over_raw(key, form, arity), over_raw(val, form, arity)
    shift = {i: i for i in range(arity)}
    for i in range(len(val.expressions)):
        shift[arity + i] = arity + len(key.expressions) + i
    return MapFilterProject(
        arity,
        (*key.expressions, *(permute(e, shift) for e in val.expressions)),
        (*key.predicates, *((at, permute(p, shift)) for at, p in val.predicates)),
        (*key.projection, *(shift[c] for c in val.projection)),
    )


def aggregate_exprs(plan: lir.ReducePlan) -> tuple[AggregateExpr, ...]:
    """A Reduce's aggregates in output order."""
    match plan:
        case lir.ReduceDistinct():
            return ()
        case lir.ReduceAccumulable(full=full):
            return full
        case lir.ReduceHierarchical(aggregates=aggregates):
            return aggregates
        case lir.ReduceBasic(aggregates=pairs):
            return tuple(expr for _, expr in sorted(pairs, key=lambda p: p[0]))
        case lir.ReduceCollation(aggregate_types=codes, accumulable=a, hierarchical=h, basic=b):
            queues = {
                "a": list(() if a is None else a.full),
                "h": list(() if h is None else h.aggregates),
                "b": list(() if b is None else aggregate_exprs(b)),
            }
            return tuple(queues[code].pop(0) for code in codes)


def summands(
    groups: Groups, engine: Engine, args: Sequence[Sql], diff: Ast, *, distinct: bool
) -> list[Ast]:
    """What a row adds to each partial sum except the count: for DISTINCT aggregates or for the others; 0 for the rest."""
    made: list[Ast] = []
    for one in groups.aggregates:
        if one.expr.distinct is not distinct:
            made += [s.cast(s.num(0), t, engine) for t in one.accumulators]
            continue
        made += summands_of(one, engine, args[one.argument], diff)
    return made


def summands_of(one: Aggregate, engine: Engine, value: Sql, diff: Ast) -> list[Ast]:
    """What a value adds to an aggregate's partial sums; never NULL."""
    assert one.func.accumulate is not None
    parts = one.func.accumulate(engine, value, diff)
    return [
        s.cast(s.coalesce(s.cast(part, t, engine), s.cast(s.num(0), t, engine)), t, engine)
        for part, t in zip(parts, one.accumulators, strict=True)
    ]


def finished(groups: Groups, engine: Engine, sums: Sequence[Sql]) -> tuple[list[Ast], Ast | None]:
    """The aggregates' values from a group's sums (the last of which is the count), and the error message if one cannot
    be computed.
    """
    values: list[Ast] = []
    branches: list[tuple[Ast, Ast]] = []
    for one in groups.aggregates:
        own = list(sums[one.start : one.start + len(one.accumulators)])
        assert one.func.finish is not None
        values.append(s.cast(one.func.finish(engine, own, one.expr.typ), one.expr.typ, engine))
        branches += error_branches(one, engine, own)
    error = s.case(*branches, otherwise=no_error(engine)) if branches else None
    return values, error


def error_branches(one: Aggregate, engine: Engine, args: Sequence[Sql]) -> list[tuple[Ast, Ast]]:
    """The conditions under which an aggregate fails, each with its message."""
    return [
        (
            rule.condition(engine, args, one.expr.typ),
            s.text(rule.message)
            if isinstance(rule.message, str)
            else rule.message(engine, args, one.expr.typ),
        )
        for rule in one.func.errors
        if rule.possible is None or rule.possible([one.argument_type.type], one.expr.typ)
    ]


def from_sums(
    r: Renderer, node: lir.Reduce, groups: Groups, sums: Collection, suffix: str, name: str
) -> Collection:
    """A Reduce's output rows from rows key ++ partial sums. Row-wise, because each row has all the sums of its group."""
    k = groups.arity
    args = columns_of(sums.columns)
    values, error = finished(groups, r.engine, args[k:])
    items: list[Ast] = [col(f"c{i}") for i in range(k)]
    items += [named(value, f"c{k + i}") for i, value in enumerate(values)]
    if sums.errors:
        whole = col(ERROR) if error is None else s.coalesce(col(ERROR), error)
        items.append(named(whole, ERROR))
    elif error is not None:
        items.append(named(error, ERROR))
    items += [col(n) for n in r.meta]
    made = Collection(
        r.define(node.lir_id, suffix, select(items, sums.relation)),
        groups.output,
        sums.errors or error is not None,
        within(sums.trace, k),
    )
    if made.errors:
        # An error row has NULL in all columns.
        blank: list[Ast] = [
            named(
                s.case((s.is_null(col(ERROR)), col(f"c{i}")), otherwise=null_of(t, r.engine)),
                f"c{i}",
            )
            for i, t in enumerate(made.columns)
        ]
        blank += [col(ERROR), *(col(n) for n in r.meta)]
        made = replace(
            made, relation=r.define(node.lir_id, f"{suffix}e", select(blank, made.relation))
        )
    return r.apply(node.lir_id, name, groups.after, made)


def contributions(
    r: Renderer, groups: Groups, rows: Collection, extra: Sequence[str]
) -> exp.Select:
    """For each row its key, what it adds to the sums (0 for DISTINCT aggregates), and the columns `extra`."""
    args = columns_of(rows.columns)
    parts = summands(groups, r.engine, args, col(DIFF), distinct=False)
    items: list[Ast] = [col(f"c{i}") for i in range(groups.arity)]
    items += [named(part, f"s{i}") for i, part in enumerate([*parts, s.big(col(DIFF))])]
    items += [col(ERROR)] if rows.errors else []
    items += [col(n) for n in extra]
    return select(items, rows.relation)


def summed(r: Renderer, groups: Groups, source: str, by: Sequence[str]) -> exp.Select:
    """Contributions added up by key and the columns `by`."""
    keys: list[Ast] = [col(f"c{i}") for i in range(groups.arity)]
    keys += [col(n) for n in by]
    items = list(keys)
    for i, typ in enumerate(groups.sums):
        total = s.cast(exp.Sum(this=col(f"s{i}")), typ.type, r.engine)
        items.insert(groups.arity + i, named(total, f"c{groups.arity + i}"))
    made = select(items, source, group=keys)
    if not keys:
        # Without GROUP BY an aggregate over no rows would return a row.
        made.set("having", exp.Having(this=s.gt(exp.Count(this=exp.Star()), s.num(0))))
    return made


def aggregated(
    r: Renderer, node: lir.Reduce, groups: Groups, rows: str, by: Sequence[str], suffix: str
) -> exp.Select:
    """Key ++ aggregates (and mz_error if one can fail) from consolidated rows key ++ values with positive mz_diff."""
    k = groups.arity
    rows = expanded(r, node, groups, rows, by, suffix)
    types = (*groups.key, *groups.values)
    keys: list[Ast] = [*(col(f"c{i}") for i in range(k)), *(col(n) for n in by)]
    # Sums are computed below and finished above, because an engine does not allow every function around an aggregate.
    parts: list[Ast] = []
    values: list[Ast] = []
    branches: list[tuple[Ast, Ast]] = []
    for i, one in enumerate(groups.aggregates):
        value = Sql(col(f"c{one.argument}"), types[one.argument].type)
        if one.func.kind != "accumulable":
            assert one.func.value is not None
            if one.expr.distinct and _numbered(groups, one):
                # The aggregates here ignore NULL, so repeated values are replaced by it.
                only = s.case((s.eq(col(f"n{i}"), s.num(1)), value.ast))
                value = Sql(only, value.typ)
            parts.append(named(one.func.value(r.engine, [value], one.expr.typ), f"v{i}"))
            values.append(s.cast(col(f"v{i}"), one.expr.typ, r.engine))
            continue
        first = s.case((s.eq(col(f"n{i}"), s.num(1)), s.num(1)), otherwise=s.num(0))
        diff = s.big(first) if one.expr.distinct else col(DIFF)
        sums: list[Sql] = []
        for j, part in enumerate(summands_of(one, r.engine, value, diff)):
            typ = one.accumulators[j]
            parts.append(named(s.cast(exp.Sum(this=part), typ, r.engine), f"v{i}_{j}"))
            sums.append(Sql(col(f"v{i}_{j}"), typ))
        assert one.func.finish is not None
        values.append(s.cast(one.func.finish(r.engine, sums, one.expr.typ), one.expr.typ, r.engine))
        branches += error_branches(one, r.engine, sums)
    inner = select([*keys, *parts], rows, group=keys)
    if not keys:
        # Without GROUP BY an aggregate over no rows would return a row.
        inner.set("having", exp.Having(this=s.gt(exp.Count(this=exp.Star()), s.num(0))))
    items: list[Ast] = [col(f"c{i}") for i in range(k)]
    items += [named(v, f"c{k + i}") for i, v in enumerate(values)]
    if branches:
        items.append(named(s.case(*branches, otherwise=no_error(r.engine)), ERROR))
    items += [col(n) for n in by]
    return select(items, subquery(inner, "a"))


def can_fail(groups: Groups) -> bool:
    """Whether an aggregate over rows can fail."""
    return any(
        rule.possible is None or rule.possible([one.argument_type.type], one.expr.typ)
        for one in groups.aggregates
        if one.func.kind == "accumulable"
        for rule in one.func.errors
    )


def _alone(groups: Groups) -> bool:
    """Whether there is a single aggregate, over a group's distinct rows."""
    (one, *others) = groups.aggregates or (None,)
    return one is not None and not others and one.func.kind == "basic" and one.expr.distinct


def _numbered(groups: Groups, one: Aggregate) -> bool:
    """Whether a DISTINCT aggregate picks the first of equal rows by a row number; MIN and MAX need not."""
    return one.func.kind == "accumulable" or (one.func.kind == "basic" and not _alone(groups))


def expanded(
    r: Renderer, node: lir.Reduce, groups: Groups, rows: str, by: Sequence[str], suffix: str
) -> str:
    """Rows repeated by their multiplicity if an aggregate needs that, and numbered if one is DISTINCT."""
    width = groups.arity + len(groups.values)
    items: list[Ast] = [col(f"c{i}") for i in range(width)]
    items += [col(n) for n in by]
    if _alone(groups):
        once = [*items, named(big(1, r.engine), DIFF)]
        rows = r.define(node.lir_id, f"{suffix}o", select(once, rows, distinct=True))
    elif any(one.func.kind == "basic" for one in groups.aggregates):
        copies = repeated(rows, items, s.big(col(DIFF)), r.engine)
        query = select([*items, named(big(1, r.engine), DIFF)], subquery(copies, "e"))
        rows = r.define(node.lir_id, f"{suffix}x", query)
    numbered = [(i, one) for i, one in groups.distinct if _numbered(groups, one)]
    if not numbered:
        return rows
    keys: list[Ast] = [*(col(f"c{i}") for i in range(groups.arity)), *(col(n) for n in by)]
    # Which of the equal rows is the first does not matter, but Spark requires an order for ROW_NUMBER.
    for i, one in numbered:
        partition = [*keys, col(f"c{one.argument}")]
        items.append(
            named(
                window(s.call("ROW_NUMBER"), partition, [ordered(col(DIFF))], rows=False), f"n{i}"
            )
        )
    return r.define(node.lir_id, f"{suffix}n", select([*items, col(DIFF)], rows))
