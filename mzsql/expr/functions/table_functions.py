"""Table functions: arrays of rows that a step unnests.

Promise: a series is computed from its length, so no engine's own series function, with its own limits and errors, is
used. A step of zero is an error; a NULL argument yields no rows. More than `MAX_ROWS` rows for one input row are an
error.
"""

from __future__ import annotations

from collections.abc import Sequence

from mzsql.expr.functions import epoch
from mzsql.expr.functions import sql as s
from mzsql.expr.functions.container import unnesting
from mzsql.expr.functions.declare import Ast, of
from mzsql.expr.functions.json.table_functions import FUNCTIONS as JSONB_FUNCTIONS
from mzsql.expr.functions.table import Engine, ErrorRule, Sql, TableFunc
from mzsql.expr.functions.text import table_functions as text_tables
from mzsql.expr.functions.time import hopping
from mzsql.repr.types import INTERVAL, ColumnType, RelationType, SqlType

#: The maximum number of rows that a table function yields for one input row.
MAX_ROWS = 10_000_000


def _one(kind: str) -> RelationType:
    return RelationType((ColumnType(of(kind), False),))


def _series(engine: Engine, start: Ast, stop: Ast, step: Ast, body: Ast) -> Ast:
    """An array of ``body`` for the lambda variable ``i0`` = 0, 1, …; empty for an empty series."""
    size = _length(start, stop, step, engine)
    bounded = s.case((s.between(size, s.num(1), s.num(MAX_ROWS)), size))
    indexes = _indexes(bounded, engine)
    return s.mapped(indexes, "i0", body, engine)


def _length(start: Ast, stop: Ast, step: Ast, engine: Engine) -> Ast:
    """The number of elements as bigint; NULL for a NULL argument or a step of zero."""
    return _steps(s.sub(s.wide(stop), s.wide(start)), step, engine)


def _steps(span: Ast, step: Ast, engine: Engine) -> Ast:
    safe = s.wide(s.nullif(step, s.num(0)))
    away = s.or_(
        s.and_(s.gt(step, s.num(0)), s.lt(span, s.num(0))),
        s.and_(s.lt(step, s.num(0)), s.gt(span, s.num(0))),
    )
    rest = s.mod(span, safe)
    exact = s.sub(span, rest)
    by_integers = s.int_div(s.hugeint(exact), s.hugeint(safe))
    quotient = s.call("TRY_DIVIDE", exact, safe) if engine is Engine.SPARK else by_integers
    whole = s.try_cast_to(s.wide(quotient), s.sql_type(of("bigint"), engine))
    return s.case((away, s.big(s.num(0))), otherwise=s.add(whole, s.num(1)))


def _indexes(size: Ast, engine: Engine) -> Ast:
    """The array 0 … size - 1; empty for a NULL size."""
    if engine is Engine.SPARK:
        empty = s.call("SLICE", s.array(s.big(s.num(0))), s.num(1), s.num(0))
        full = s.call(
            "SEQUENCE", s.big(s.num(0)), s.sub(s.coalesce(size, s.big(s.num(1))), s.num(1))
        )
        return s.case((s.is_null(size), empty), otherwise=full)
    return s.call("RANGE", s.coalesce(s.big(size), s.big(s.num(0))))


def _integers(kind: str, *, stepped: bool) -> TableFunc:
    def rows(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        start, stop = args[0].ast, args[1].ast
        step = args[2].ast if stepped else s.cast(s.num(1), of(kind), engine)
        index = s.variable("i0")
        body = s.cast(s.add(s.wide(start), s.mul(s.wide(index), s.wide(step))), of(kind), engine)
        return _series(engine, start, stop, step, body)

    zero = ErrorRule(
        lambda _e, args, _t: s.eq(args[2].ast, s.num(0)), "step size cannot equal zero"
    )

    def long(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        step = args[2].ast if stepped else s.num(1)
        return s.gt(_length(args[0].ast, args[1].ast, step, engine), s.num(MAX_ROWS))

    too_long = ErrorRule(long, f"generate_series yields more than {MAX_ROWS} rows")
    return TableFunc(
        key=f"generate_series_{kind}" + ("_step" if stepped else ""),
        name="generate_series",
        args=(of(kind),) * (3 if stepped else 2),
        names=("generate_series",),
        output=_one(kind),
        rows=rows,
        errors=(zero, too_long) if stepped else (too_long,),
    )


def _by_months(args: Sequence[Sql], kind: str, engine: Engine) -> Ast:
    """A series built step by step, since the length of a month depends on its start; the shortest months limit the
    number of steps.
    """
    start, stop = (s.cast(arg.ast, of("timestamp"), engine) for arg in args[:2])
    months, days, micros = (s.field(args[2].ast, part) for part in ("months", "days", "micros"))
    step = s.add(
        s.add(s.call("TO_MONTHS", months), s.call("TO_DAYS", days)),
        s.call("TO_MICROSECONDS", micros),
    )
    day = s.num(epoch.DAY_MICROS)
    shortest = s.add(
        s.mul(s.hugeint(s.add(s.mul(s.big(months), s.num(28)), s.big(days))), day),
        s.hugeint(micros),
    )
    ends = [s.hugeint(epoch.micros(arg.ast, kind, engine)) for arg in args[:2]]
    steps = s.int_div(
        s.call("ABS", s.sub(ends[1], ends[0])), s.call("GREATEST", s.call("ABS", shortest), day)
    )
    done, item = s.variable("gm0"), s.variable("gm1")
    following = s.add(s.call("LIST_EXTRACT", done, s.num(-1)), step)
    grow = s.lambda_(("gm0", "gm2"), s.call("LIST_APPEND", done, following))
    every = s.call(
        "LIST_REDUCE", s.call("RANGE", s.add(s.big(steps), s.num(1))), grow, s.array(start)
    )
    forth = s.and_(s.gt(shortest, s.num(0)), s.lte(item, stop))
    back = s.and_(s.lt(shortest, s.num(0)), s.gte(item, stop))
    return s.call("LIST_FILTER", every, s.lambda_(("gm1",), s.or_(forth, back)))


def _times(kind: str) -> TableFunc:
    """A series of times whose step is an interval without months, as microseconds."""

    def step_micros(args: Sequence[Sql]) -> Ast:
        days = s.mul(s.wide(s.field(args[2].ast, "days")), s.num(epoch.DAY_MICROS))
        return s.add(days, s.wide(s.field(args[2].ast, "micros")))

    def rows(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        start, stop = (epoch.micros(arg.ast, kind, engine) for arg in args[:2])
        step = s.case((s.eq(s.field(args[2].ast, "months"), s.num(0)), step_micros(args)))
        micros = s.add(s.wide(start), s.mul(s.wide(s.variable("i0")), step))
        body = epoch.timestamp_of_micros(micros, of(kind), engine)
        even = _series(engine, start, stop, step, body)
        if engine is Engine.SPARK:
            return even
        by_months = s.neq(s.field(args[2].ast, "months"), s.num(0))
        array = SqlType("array", element=of(kind))
        uneven = s.cast(_by_months(args, kind, engine), array, engine)
        return s.case((by_months, uneven), otherwise=s.cast(even, array, engine))

    def zero(_engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        """A step of a month less 30 days is zero, since a month counts as 30 days."""
        months = s.wide(s.field(args[2].ast, "months"))
        whole = s.add(s.mul(months, s.num(30 * epoch.DAY_MICROS)), step_micros(args))
        return s.eq(whole, s.num(0))

    def months(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        if engine is Engine.DUCKDB:
            return s.boolean(False)
        return s.neq(s.field(args[2].ast, "months"), s.num(0))

    def long(engine: Engine, args: Sequence[Sql], _typ: SqlType) -> Ast:
        start, stop = (epoch.micros(arg.ast, kind, engine) for arg in args[:2])
        return s.gt(_length(start, stop, step_micros(args), engine), s.num(MAX_ROWS))

    return TableFunc(
        key=f"generate_series_{kind}",
        name="generate_series",
        args=(of(kind), of(kind), INTERVAL),
        names=("generate_series",),
        output=_one(kind),
        rows=rows,
        errors=(
            ErrorRule(
                months,
                "generate_series by an interval of months or years is not supported in a dataflow",
            ),
            ErrorRule(zero, "step size cannot equal zero"),
            ErrorRule(long, f"generate_series yields more than {MAX_ROWS} rows"),
        ),
    )


FUNCTIONS: tuple[TableFunc, ...] = (
    *(
        _integers(kind, stepped=stepped)
        for kind in ("integer", "bigint")
        for stepped in (False, True)
    ),
    _times("timestamp"),
    _times("timestamptz"),
    *hopping.functions(_series),
    *unnesting.FUNCTIONS,
    *text_tables.FUNCTIONS,
    *JSONB_FUNCTIONS,
)
