"""Window functions: each row of a group with its function's result, computed by the engine's own windows.

Promise: results do not depend on an engine's order of equal rows: rows that the window's order leaves equal are
ordered by all their columns, ascending, NULLs last; peers remain peers. Sums are exact, and an overflow is an error
of the rows that it affects. A Reduce whose list is unnested returns rows; otherwise they are gathered into a list.

Trade-off on Spark: `lag` and `lead` take only a literal offset there, and frames in GROUPS, with distances or with
EXCLUDE are unsupported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sqlglot import expressions as exp

from mzsql.expr import functions
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.aggregate import windows as keys
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.scalar import AggregateExpr, Call, Literal, Scalar
from mzsql.lir import plan as lir
from mzsql.render.nodes import groups as g
from mzsql.render.nodes.renderer import Renderer
from mzsql.render.statement import (
    DIFF,
    ERROR,
    Ast,
    big,
    col,
    named,
    no_error,
    null_of,
    ordered,
    select,
    subquery,
)
from mzsql.repr.errors import Unsupported
from mzsql.repr.interval_text import parse_interval
from mzsql.repr.types import INTEGER, ColumnType, SqlType

#: Functions that are aggregates in either engine, although sqlglot has no class for them.
_ENGINE_AGGREGATES = frozenset(
    {"LIST", "COLLECT_LIST", "COUNT", "MIN", "MAX", "BIT_AND", "BIT_OR", "BIT_XOR"}
)


def window_of(node: lir.Reduce) -> keys.WindowFunc | None:
    """The window function that a Reduce computes; None if it computes something else."""
    if not isinstance(node.plan, lir.ReduceBasic) or len(node.plan.aggregates) != 1:
        return None
    return keys.parse(node.plan.aggregates[0][1].func)


def fused(node: lir.Reduce) -> bool:
    """Whether the Reduce returns a row for each element of its lists."""
    return isinstance(node.plan, lir.ReduceBasic) and node.plan.fused_unnest_list


def output(node: lir.Reduce, groups: g.Groups) -> tuple[ColumnType, ...]:
    """The types of the key and of the list, or of its element if `fused`."""
    if not fused(node):
        return groups.output
    element = groups.aggregates[0].expr.typ.element
    assert element is not None
    return (*groups.key, ColumnType(element, nullable=False))


@dataclass(frozen=True)
class _Window:
    """A window function over the columns that `_laid_out` makes: k… o… t… a…

    Attributes:
        func: the function.
        engine: the engine that runs it.
        by: the PARTITION BY.
        orders: the ORDER BY.
        ties: a further order of rows that `orders` leaves equal.
        argument: the argument's type; None if there is none.
        result: the result's type.
        expr: the aggregate's argument, as planned.
        order_types: types of the columns of `orders`.
        path: where in the aggregate's argument the function's own is: fields by position.
    """

    func: keys.WindowFunc
    engine: Engine
    by: tuple[Ast, ...]
    orders: tuple[exp.Ordered, ...]
    ties: tuple[exp.Ordered, ...]
    argument: SqlType | None
    result: SqlType
    expr: Scalar
    order_types: tuple[SqlType, ...] = ()
    path: tuple[int, ...] = (0, 1)

    @property
    def suffix(self) -> str:
        """What tells the function's columns from those of others that it is fused with."""
        return "".join(f"_{position}" for position in self.path[2:])

    def given(self, position: int) -> Ast:
        """The column of an argument."""
        return col(f"a{position}{self.suffix}")

    def part(self, position: int = 0) -> str:
        """The name of a column that the window computes."""
        return f"v{position}{self.suffix}"

    def over(
        self, function: Ast, order: Sequence[exp.Ordered], frame: keys.Frame | None = None
    ) -> Ast:
        """``function OVER (PARTITION BY … ORDER BY … [ROWS BETWEEN …])``."""
        return self.over_parts(function, self.by, order, frame)

    def over_parts(
        self,
        function: Ast,
        by: Sequence[Ast],
        order: Sequence[exp.Ordered],
        frame: keys.Frame | None,
    ) -> Ast:
        """A window with the given partition, order and frame."""
        return exp.Window(
            this=function.copy(),
            partition_by=[p.copy() for p in by],
            order=exp.Order(expressions=[o.copy() for o in order]) if order else None,
            spec=None if frame is None else _spec(frame, self.order_types),
        )

    @property
    def total(self) -> tuple[exp.Ordered, ...]:
        """An order without ties."""
        return (*self.orders, *self.ties)


def _spec(frame: keys.Frame, order: Sequence[SqlType]) -> exp.WindowSpec:
    def bound(at: int | None, unbounded: str, distance: str) -> tuple[Ast | str, str | None]:
        if at is None:
            return "UNBOUNDED", unbounded
        if distance:
            return _distance(distance, order[0]), "PRECEDING" if at < 0 else "FOLLOWING"
        if at == 0:
            return "CURRENT ROW", None
        return s.num(abs(at)), "PRECEDING" if at < 0 else "FOLLOWING"

    (start, start_side), (end, end_side) = (
        bound(frame.start, "PRECEDING", frame.distances[0]),
        bound(frame.end, "FOLLOWING", frame.distances[1]),
    )
    return exp.WindowSpec(
        kind=frame.units.upper(),
        start=start,
        start_side=start_side,
        end=end,
        end_side=end_side,
        exclude=exp.Var(this=frame.exclude.upper()) if frame.exclude else None,
    )


def _distance(quoted: str, order: SqlType) -> Ast:
    """A frame's distance in an ordering column, in a form that DuckDB can add to it."""
    text = quoted.strip("'")
    if order.kind in ("date", "timestamp", "timestamptz"):
        span = parse_interval(text)
        days = s.add(s.call("TO_MONTHS", s.num(span.months)), s.call("TO_DAYS", s.num(span.days)))
        return s.add(days, s.call("TO_MICROSECONDS", s.num(span.microseconds)))
    if order.kind in ("real", "double"):
        return s.double(s.text(text))
    scale = (
        max(order.effective_scale, len(text.partition(".")[2])) if order.kind == "numeric" else 0
    )
    return s.cast_to(s.text(text), s.decimal_type(38, scale))


def _measured(column: Ast, order: SqlType) -> Ast:
    """An ordering column in a type wide enough for distances to be added without overflow."""
    if order.kind in ("real", "double"):
        return s.double(column)
    if order.kind in ("smallint", "integer", "bigint", "uint2", "uint4", "uint8"):
        return s.cast_to(column, s.decimal_type(38, 0))
    return column


def windowed(
    r: Renderer,
    node: lir.Reduce,
    groups: g.Groups,
    rows: str,
    by: Sequence[str] = (),
    suffix: str = "a",
) -> exp.Select:
    """Key ++ result (mz_error if `can_fail`, and `by`) from consolidated rows key ++ argument (and `by`) with positive
    mz_diff.

    The rows of each key, and of each value of the columns `by`, form a partition.
    """
    func = window_of(node)
    assert func is not None
    k = groups.arity
    one = groups.aggregates[0]
    rows = g.expanded(r, node, groups, rows, by, suffix)
    extra: list[Ast] = [col(name) for name in by]
    payload = one.argument_type.type.fields[0][1].type
    original = keys.original_type(func, payload)
    laid_out = _laid_out(func, k, Sql(col(f"c{k}"), one.argument_type.type), original)
    laid_out += extra
    element = one.expr.typ.element
    assert element is not None
    result = element.fields[0][1].type
    for part in func.parts or (func,):
        _check_engine(part, r.engine)
    order_types = tuple(c.type for _, c in one.argument_type.type.fields[1 : len(func.order) + 1])
    window = _Window(
        func,
        r.engine,
        (*(col(f"c{i}") for i in range(k)), *extra),
        tuple(
            ordered(_key(func, i, order_types[i]), desc=desc, nulls_last=last)
            for i, (desc, last) in enumerate(func.order)
        ),
        tuple(ordered(col(f"t{i}")) for i in range(len(original.fields))),
        None,
        result,
        one.expr.expr,
        order_types,
    )
    parts, value, error = _functions(window, payload)
    numbered = select(
        [*(col(f"c{i}") for i in range(k)), col("mz_row"), *parts, *extra],
        subquery(select(laid_out, rows), "b"),
    )
    record = s.cast(
        s.struct(f1=s.cast(value, result, r.engine), f2=col("mz_row")), element, r.engine
    )
    items: list[Ast] = [*(col(f"c{i}") for i in range(k)), named(record, f"c{k}")]
    if error is not None:
        items.append(named(error, ERROR))
    items += extra
    made = select(items, subquery(numbered, "w"))
    if fused(node):
        return made
    name = r.define(node.lir_id, f"{suffix}w", made)
    listed = s.call("COLLECT_LIST" if r.engine is Engine.SPARK else "LIST", col(f"c{k}"))
    group: list[Ast] = [*(col(f"c{i}") for i in range(k)), *extra]
    items = [*group[:k], named(listed, f"c{k}")]
    if error is not None:
        items.append(named(exp.Max(this=col(ERROR)), ERROR))
    items += extra
    gathered = select(items, name, group=group)
    if not group:
        # Without GROUP BY an aggregate over no rows would return a row.
        gathered.set("having", exp.Having(this=s.gt(exp.Count(this=exp.Star()), s.num(0))))
    return gathered


def _key(func: keys.WindowFunc, position: int, typ: SqlType) -> Ast:
    """An ordering column; in a wide type if the frame adds distances to it."""
    column = col(f"o{position}")
    measured = func.frame is not None and any(func.frame.distances)
    return _measured(column, typ) if measured else column


def _check_engine(func: keys.WindowFunc, engine: Engine) -> None:
    frame = func.frame
    if engine is not Engine.SPARK or frame is None or (frame.units == "rows" and frame.is_plain):
        return
    if func.kind == "value" or not frame.is_plain:
        raise Unsupported(
            f"the window frame {frame} is not supported over this much data",
            hint="use a frame in ROWS",
        )


def can_fail(groups: g.Groups) -> bool:
    """Whether a window aggregate can fail."""
    return any(_rules(one) for one in _wrapped(groups.aggregates[0]))


def _laid_out(func: keys.WindowFunc, k: int, record: Sql, original: SqlType) -> list[Ast]:
    """Each row's key, its original row, and the columns that the window reads of it."""
    payload = s.field(record.ast, "f1")
    row = exp.Bracket(this=payload, expressions=[s.num(0)]) if func.kind == "scalar" else None
    whole: Ast = s.field(payload, "f1") if row is None else row
    items: list[Ast] = [*(col(f"c{i}") for i in range(k)), named(whole, "mz_row")]
    items += [named(s.field(record.ast, f"f{i + 2}"), f"o{i}") for i in range(len(func.order))]
    items += [named(s.field(whole, f"f{i + 1}"), f"t{i}") for i in range(len(original.fields))]
    if func.kind == "scalar":
        return items
    given = s.field(payload, "f2")
    if func.kind != "fused":
        return items + _arguments(func, given, "")
    for i, part in enumerate(func.parts):
        items += _arguments(part, s.field(given, f"f{i + 1}"), f"_{i}")
    return items


def _arguments(func: keys.WindowFunc, given: Ast, suffix: str) -> list[Ast]:
    if func.func not in keys.OF_RECORDS:
        return [named(given, f"a0{suffix}")]
    fields = 2 if func.func == "nth_value" else 3
    return [named(s.field(given, f"f{i + 1}"), f"a{i}{suffix}") for i in range(fields)]


def _functions(window: _Window, payload: SqlType) -> tuple[list[Ast], Ast, Ast | None]:
    """As `_function`, for one function or for several that are fused, whose values make a record."""
    func = window.func
    if func.kind != "fused":
        argument = None if func.kind == "scalar" else keys.argument_type(func, payload)
        return _function(replace(window, argument=argument))
    columns: list[Ast] = []
    values: dict[str, Ast] = {}
    errors: list[Ast] = []
    for i, part in enumerate(func.parts):
        own = replace(
            window,
            func=part,
            argument=keys.argument_type(part, keys.payload_of(payload, i)),
            result=window.result.fields[i][1].type,
            path=(*window.path, i),
        )
        made, value, error = _function(own)
        columns += made
        values[f"f{i + 1}"] = s.cast(value, own.result, window.engine)
        if error is not None:
            errors.append(error)
    return columns, s.struct(**values), s.coalesce(*errors) if errors else None


def _function(window: _Window) -> tuple[list[Ast], Ast, Ast | None]:
    """The columns to compute in the window, the value above them, and its error message if it can fail."""
    func = window.func
    if func.kind == "aggregate":
        return _aggregate(window)
    if func.func == "ntile":
        columns, value = _parts(window)
        return columns, value, None
    if func.func == "row_number":
        # Spark refuses ranking functions without ORDER BY. Where there is no column to order by all rows are equal,
        # so any order will do.
        made = window.over(s.call("ROW_NUMBER"), window.total or (ordered(s.num(1)),))
    elif func.kind == "scalar":
        made = window.over(s.call(func.func.upper()), window.orders or (ordered(s.num(1)),))
    elif func.func in ("lag", "lead"):
        made = _shifted(window)
    elif func.func == "nth_value":
        made = _nth(window)
    else:
        made = _edge(window)
    return [named(made, window.part())], col(window.part()), None


def _edge(window: _Window) -> Ast:
    """The first or the last value of a frame."""
    func, argument = window.func, window.argument
    assert argument is not None
    call = s.call(func.func.upper(), window.given(0))
    if func.frame is not None:
        if func.frame.is_empty:
            return null_of(ColumnType(argument), window.engine)
        if func.frame.units != "rows":
            # Which of several peers is first is decided by the order of all columns, as everywhere.
            chosen = exp.Order(this=window.given(0), expressions=[o.copy() for o in window.total])
            ordered_call = exp.Anonymous(this=func.func.upper(), expressions=[chosen])
            return window.over(ordered_call, window.orders, func.frame)
        return window.over(call, window.total or (ordered(s.num(1)),), func.frame)
    everything = keys.Frame(None, None)
    if func.func == "first_value":
        return window.over(call, window.total or (ordered(s.num(1)),), everything)
    # The default frame ends at the current row's last peer, so its last value is that of the last row among the peers.
    peers = (*window.by, *(o.this for o in window.orders))
    return window.over_parts(call, peers, window.ties or (ordered(s.num(1)),), everything)


def _nth(window: _Window) -> Ast:
    """The value of the n-th row of the frame, counted from one."""
    func = window.func
    count: Ast = s.big(window.given(1))
    if window.engine is Engine.SPARK:
        fixed = _literal_offset(window.expr, window.path)
        if fixed is None:
            msg = (
                "nth_value with a number that is not a literal is not supported over this much data"
            )
            raise Unsupported(msg, hint="write which row as a number")
        if fixed.value is None:
            return s.cast(s.null(), window.result, window.engine)
        count = s.num(int(str(fixed.value)))
    made = s.call("NTH_VALUE", window.given(0), count)
    if func.frame is None:
        # The default frame starts at the partition's first row, so the n-th row of the partition is meant, if it is
        # not after the last peer.
        found = window.over(made, window.total or (ordered(s.num(1)),), keys.Frame(None, None))
        size = window.over(exp.Count(this=exp.Star()), window.orders)
        return s.case((s.lte(s.big(window.given(1)), size), found))
    if func.frame.is_empty:
        return s.cast(s.null(), window.result, window.engine)
    if func.frame.units == "rows":
        return window.over(made, window.total or (ordered(s.num(1)),), func.frame)
    chosen = exp.Order(this=count, expressions=[o.copy() for o in window.total])
    ordered_call = exp.Anonymous(this="NTH_VALUE", expressions=[window.given(0), chosen])
    return window.over(ordered_call, window.orders, func.frame)


def _parts(window: _Window) -> tuple[list[Ast], Ast]:
    """ntile: the number of the bucket that a row is in; buckets are as equal as possible, larger ones first. The
    partition's first row gives the number of buckets.
    """
    total, everything = window.total or (ordered(s.num(1)),), keys.Frame(None, None)
    columns: list[Ast] = [
        named(window.over(s.call("ROW_NUMBER"), total), window.part(0)),
        named(window.over(exp.Count(this=exp.Star()), ()), window.part(1)),
        named(
            window.over(s.call("FIRST_VALUE", window.given(0)), total, everything), window.part(2)
        ),
    ]
    before, count = (
        s.sub(col(window.part(0)), s.num(1)),
        s.nullif(s.big(col(window.part(2))), s.num(0)),
    )
    size, larger = s.int_div(col(window.part(1)), count), s.mod(col(window.part(1)), count)
    wider = s.add(size, s.num(1))
    border = s.mul(larger, wider)
    among_larger = s.int_div(before, wider)
    rest = s.int_div(s.sub(before, border), s.nullif(size, s.num(0)))
    part = s.case((s.lt(before, border), among_larger), otherwise=s.add(larger, rest))
    return columns, s.add(part, s.num(1))


def _shifted(window: _Window) -> Ast:
    """The value at an offset, for lag and lead; the default outside of the partition, NULL if the offset is NULL."""
    name, order = window.func.func.upper(), window.total or (ordered(s.num(1)),)
    if window.engine is Engine.DUCKDB:
        offset = s.coalesce(s.big(window.given(1)), big(0, window.engine))
        kind = exp.Lag if name == "LAG" else exp.Lead
        call: Ast = kind(this=window.given(0), offset=offset, default=window.given(2))
        if window.func.ignore_nulls:
            call = exp.IgnoreNulls(this=call)
        return s.case((s.is_not_null(window.given(1)), window.over(call, order)))
    fixed = _literal_offset(window.expr, window.path)
    if fixed is None:
        msg = f"{window.func.func} with an offset that is not a literal is not supported over this much data"
        raise Unsupported(msg, hint="write the offset as a number")
    if fixed.value is None:
        return s.cast(s.null(), window.result, window.engine)
    call = exp.Anonymous(this=name, expressions=[window.given(0), s.num(int(str(fixed.value)))])
    found = s.struct(f1=window.given(0))
    there = exp.Anonymous(this=name, expressions=[found, s.num(int(str(fixed.value)))])
    if window.func.ignore_nulls:
        shifted = window.over(exp.IgnoreNulls(this=call), order)
        return s.coalesce(shifted, window.given(2))
    # A struct around the value tells a missing row from a row whose value is NULL.
    outside = s.is_null(window.over(there, order))
    return s.case((outside, window.given(2)), otherwise=window.over(call, order))


def _literal_offset(expr: Scalar, path: Sequence[int]) -> Literal | None:
    """The offset in the row(value, offset, default) at ``path`` of row(row(original, …), …), if it is a literal."""
    for position in (*path, 1):
        if isinstance(expr, Literal) and expr.typ.kind == "record" and expr.value is not None:
            datum = json.loads(str(expr.value))[position]
            expr = Literal(datum, expr.typ.fields[position][1].type)
            continue
        if not isinstance(expr, Call) or expr.func != "row":
            return None
        expr = expr.args[position]
    return expr if isinstance(expr, Literal) and expr.typ == INTEGER else None


# --- aggregates --------------------------------------------------------------------------------------


def _wrapped(one: g.Aggregate) -> list[g.Aggregate]:
    """The aggregates inside a window aggregate, or in several that are fused."""
    func = keys.parse(one.expr.func)
    assert func is not None
    payload = one.argument_type.type.fields[0][1].type
    element = one.expr.typ.element
    assert element is not None
    result = element.fields[0][1].type
    if func.kind == "aggregate":
        return [_inner(one, func, payload, result)]
    return [
        _inner(one, part, keys.payload_of(payload, i), result.fields[i][1].type)
        for i, part in enumerate(func.parts)
        if part.kind == "aggregate"
    ]


def _inner(
    one: g.Aggregate, func: keys.WindowFunc, payload: SqlType, result: SqlType
) -> g.Aggregate:
    argument = keys.argument_type(func, payload)
    inner = functions.aggregate(func.func)
    expr = AggregateExpr(func.func, one.expr.expr, False, result, inner.nullable)
    parts = g.accumulator_types(inner, argument)
    return g.Aggregate(expr, inner, 0, ColumnType(argument), 0, parts)


def _rules(one: g.Aggregate) -> list[object]:
    return [
        rule
        for rule in one.func.errors
        if rule.possible is None or rule.possible([one.argument_type.type], one.expr.typ)
    ]


def _over_frame(window: _Window) -> Callable[[Ast], Ast]:
    """A function that puts an aggregate over the window's frame; NULL if no row can be in the frame."""
    frame = window.func.frame
    if frame is None:
        return lambda made: window.over(made, window.orders)
    if frame.is_empty:
        return lambda _: s.null()
    if frame.units != "rows":
        return lambda made: window.over(made, window.orders, frame)
    return lambda made: window.over(made, window.total or (ordered(s.num(1)),), frame)


def _aggregate(window: _Window) -> tuple[list[Ast], Ast, Ast | None]:
    assert window.argument is not None
    engine, over = window.engine, _over_frame(window)
    func = functions.aggregate(window.func.func)
    value = Sql(window.given(0), window.argument)
    if func.kind != "accumulable":
        assert func.value is not None
        name = window.part()
        if window.func.frame is not None and window.func.frame.is_empty:
            return [named(s.cast(s.null(), window.result, engine), name)], col(name), None
        made = func.value(engine, [value], window.result)
        return [named(_windowed_parts(made, over), name)], col(name), None
    expr = AggregateExpr(func.key, window.expr, False, window.result, func.nullable)
    types = g.accumulator_types(func, window.argument)
    one = g.Aggregate(expr, func, 0, ColumnType(window.argument), 0, types)
    parts: list[Ast] = []
    sums: list[Sql] = []
    for i, part in enumerate(g.summands_of(one, engine, value, big(1, engine))):
        zero = s.cast(s.num(0), types[i], engine)
        total = s.coalesce(over(exp.Sum(this=part)), zero)
        parts.append(named(s.cast(total, types[i], engine), window.part(i)))
        sums.append(Sql(col(window.part(i)), types[i]))
    assert func.finish is not None
    finished = s.cast(func.finish(engine, sums, window.result), window.result, engine)
    branches = g.error_branches(one, engine, sums)
    error = s.case(*branches, otherwise=no_error(engine)) if branches else None
    return parts, finished, error


def _windowed_parts(made: Ast, over: Callable[[Ast], Ast]) -> Ast:
    """An expression over a group's rows with each aggregate in it put over a window."""

    def visit(node: exp.Expression) -> exp.Expression:
        aggregate = node.this if isinstance(node, exp.Filter) else node
        if isinstance(aggregate, exp.AggFunc) or (
            isinstance(aggregate, exp.Anonymous)
            and str(aggregate.this).upper() in _ENGINE_AGGREGATES
        ):
            return over(node)
        return node

    holder = exp.Paren(this=made.copy())
    return holder.transform(visit) if not _is_root(made) else over(made)


def _is_root(made: Ast) -> bool:
    inner = made.this if isinstance(made, exp.Filter) else made
    return isinstance(inner, exp.AggFunc) or (
        isinstance(inner, exp.Anonymous) and str(inner.this).upper() in _ENGINE_AGGREGATES
    )


__all__ = ["DIFF", "can_fail", "fused", "output", "window_of", "windowed"]
