"""The REFRESH options of materialized views: ON COMMIT, the default, and Materialize's others.

Promise: options are checked as Materialize checks them. A plan keeps ``mz_now()`` in them, since planning knows no
time; creating the view supplies the time, which gives its schedule and its definition (`scheduled`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.expr.scalar import Literal, Scalar, Unmaterializable, support, transform, walk
from mzsql.frontend.catalog import CatalogView
from mzsql.frontend.definitions.normalize import normalize_create_sql
from mzsql.frontend.names.scope import Scope
from mzsql.frontend.parse import statements as st
from mzsql.frontend.plan import ddl_plans
from mzsql.frontend.query.query import QueryPlanner
from mzsql.frontend.scalar.coerce import cast
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.standalone import plain_scalar
from mzsql.repr.errors import InvalidParameter, SqlError
from mzsql.repr.frontier import MAX_TIMESTAMP, Timestamp
from mzsql.repr.interval_text import Cut, parse_interval
from mzsql.repr.refresh import RefreshEvery, RefreshSchedule
from mzsql.repr.types import MZ_TIMESTAMP, type_name

_NOW = Unmaterializable("mz_now", MZ_TIMESTAMP)
_MZ_NOW = re.compile(r"(?:mz_catalog\s*\.\s*)?\bmz_now\s*\(\s*\)", re.IGNORECASE)
#: A sample time to check that an expression over ``mz_now()`` is a constant otherwise; large enough for expressions
#: that subtract.
_SOME_TIME = 1_700_000_000_000


def refresh_options(
    statement: st.CreateView, catalog: CatalogView
) -> tuple[ddl_plans.RefreshOption, ...]:
    """A materialized view's REFRESH options; empty for ON COMMIT.

    Raises:
        SqlError: an option is wrong, or the options contradict each other.
    """
    options = statement.refresh
    commits = sum(one.kind == "on commit" for one in options)
    if commits > 1:
        raise InvalidParameter(
            "REFRESH ON COMMIT cannot be specified multiple times", position=options[-1].position
        )
    if commits and len(options) > 1:
        raise InvalidParameter(
            "REFRESH ON COMMIT is not compatible with any of the other REFRESH options",
            position=options[-1].position,
        )
    if commits:
        return ()
    return tuple(_option(one, statement.source.text, catalog) for one in options)


def _option(one: st.Refresh, text: str, catalog: CatalogView) -> ddl_plans.RefreshOption:
    every_ms = _interval_ms(one) if one.kind == "every" else None
    quoted = one.every.replace("'", "''")
    every = f"'{quoted}' {one.unit.upper()}".strip()
    if one.at is None:
        return ddl_plans.RefreshOption(_NOW, "mz_now()", every_ms, every)
    clause = "REFRESH AT" if one.kind == "at" else "REFRESH EVERY ... ALIGNED TO"
    at = _time(one.at, clause, one.position, catalog)
    written = normalize_create_sql(text, one.at.meta["span"], [one.at], ())
    return ddl_plans.RefreshOption(at, written, every_ms, every)


def shown_unscheduled(options: Sequence[ddl_plans.RefreshOption], now: str = "mz_now()") -> str:
    """The options as a definition writes them."""
    return ", ".join(f"REFRESH = {_shown(one, now)}" for one in options) or "REFRESH = ON COMMIT"


def _shown(option: ddl_plans.RefreshOption, now: str) -> str:
    at = _MZ_NOW.sub(now, option.text)
    if option.every_ms is None:
        return f"AT {at}"
    return f"EVERY {option.every} ALIGNED TO {at}"


def scheduled(options: ddl_plans.RefreshOptions, now: Timestamp) -> tuple[RefreshSchedule, str]:
    """The schedule of a view created at time ``now``, and its definition with that time for ``mz_now()``.

    Raises:
        InvalidParameter: a time is NULL, or computing it fails.
    """
    literal = f'{now}::"mz_catalog"."mz_timestamp"'
    evaluator = Evaluator()
    try:
        times = evaluator.evaluate([_with_now(one.at, now) for one in options.options])
    finally:
        evaluator.close()
    everies, ats = list[RefreshEvery](), list[Timestamp]()
    for option, at in zip(options.options, times, strict=True):
        if not isinstance(at, int):
            raise InvalidParameter(f"a time of REFRESH cannot be computed: {at}")
        if option.every_ms is None:
            ats.append(at)
        else:
            everies.append(RefreshEvery(option.every_ms, at))
    sql = f"{options.before}{shown_unscheduled(options.options, literal)}{options.after}"
    return RefreshSchedule(tuple(everies), tuple(sorted(set(ats)))), sql


def _interval_ms(option: st.Refresh) -> int:
    cut = Cut(option.unit, None, None) if option.unit else None
    interval = parse_interval(option.every, cut)
    if interval.months:
        raise InvalidParameter(
            "REFRESH interval must not involve units larger than days", position=option.position
        )
    microseconds = interval.days * 86_400_000_000 + interval.microseconds
    if microseconds <= 0:
        raise InvalidParameter(
            f"REFRESH interval must be positive; got: {interval}", position=option.position
        )
    milliseconds = microseconds // 1000
    if not 1 <= milliseconds <= MAX_TIMESTAMP:
        raise InvalidParameter(
            f"REFRESH interval must be at least one millisecond; got: {interval}",
            position=option.position,
        )
    return milliseconds


def _time(node: exp.Expr, clause: str, position: int, catalog: CatalogView) -> Scalar:
    """A time that is constant, but for ``mz_now()``."""
    if node.find(exp.Query) is not None:
        raise SqlError(f"{clause} does not allow subqueries", position=position, sqlstate="0A000")
    value = ExprContext(QueryPlanner(catalog), Scope(), clause).plan(node)
    done = cast(value, MZ_TIMESTAMP, "explicit")
    if done is None:
        raise InvalidParameter(
            f"{clause} does not support casting from {type_name(value.typ)} to mz_timestamp",
            position=position,
            sqlstate="42846",
        )
    scalar = plain_scalar(done.expr, clause)
    if not _is_constant(_with_now(scalar, _SOME_TIME)):
        raise InvalidParameter(
            f"{clause} argument must be an expression that can be simplified and/or cast to a constant"
            " whose type is mz_timestamp",
            position=position,
        )
    return scalar


def _with_now(scalar: Scalar, now: Timestamp) -> Scalar:
    """The expression with a time in place of ``mz_now()``."""

    def replaced(part: Scalar) -> Scalar:
        if isinstance(part, Unmaterializable) and part.func == "mz_now":
            return Literal(now, MZ_TIMESTAMP)
        return part

    return transform(scalar, replaced)


def _is_constant(scalar: Scalar) -> bool:
    if support(scalar) or any(isinstance(part, Unmaterializable) for part in walk(scalar)):
        return False
    evaluator = Evaluator()
    try:
        (value,) = evaluator.evaluate([scalar])
    finally:
        evaluator.close()
    return value is not None and not isinstance(value, EvalError)
