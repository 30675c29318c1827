"""REFRESH of materialized views: ON COMMIT, which every view does, and what Materialize has besides.

Promise: what is said of REFRESH is understood and checked as Materialize checks it. A view is brought up to date with every commit; any
other strategy is refused, after its own errors, rather than taken and not followed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import expressions as exp

from mzsql.expr.evaluate import EvalError, Evaluator
from mzsql.expr.scalar import Literal, Scalar, Unmaterializable, support, transform, walk
from mzsql.frontend.catalog import CatalogView
from mzsql.frontend.names.scope import Scope
from mzsql.frontend.parse import statements as st
from mzsql.frontend.query.query import QueryPlanner
from mzsql.frontend.scalar.coerce import cast
from mzsql.frontend.scalar.context import ExprContext
from mzsql.frontend.scalar.plain import plain_scalar
from mzsql.repr.errors import InvalidParameter, SqlError, Unsupported
from mzsql.repr.interval_text import parse_interval
from mzsql.repr.types import MZ_TIMESTAMP, type_name


def check_refresh(options: Sequence[st.Refresh], catalog: CatalogView) -> None:
    """Check the options REFRESH of a materialized view.

    Raises:
        SqlError: they are wrong, by themselves or together.
        Unsupported: they ask for another strategy than ON COMMIT.
    """
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
    for one in options:
        if one.kind == "every":
            _check_interval(one)
        if one.at is not None:
            clause = "REFRESH AT" if one.kind == "at" else "REFRESH EVERY ... ALIGNED TO"
            _check_time(one.at, clause, one.position, catalog)
    if options and not commits:
        raise Unsupported(
            "REFRESH EVERY and REFRESH AT materialized views is not available",
            position=options[0].position,
            hint="Every materialized view is brought up to date with each commit.",
        )


def _check_interval(option: st.Refresh) -> None:
    interval = parse_interval(option.every)
    if interval.months:
        raise InvalidParameter(
            "REFRESH interval must not involve units larger than days", position=option.position
        )
    if interval.days * 86_400_000_000 + interval.microseconds <= 0:
        raise InvalidParameter(
            f"REFRESH interval must be positive; got: {interval}", position=option.position
        )


def _check_time(node: exp.Expr, clause: str, position: int, catalog: CatalogView) -> None:
    """A time is a constant, or is one once ``mz_now()`` is."""
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
    scalar = transform(plain_scalar(done.expr, clause), _at_first)
    if not _is_constant(scalar):
        raise InvalidParameter(
            f"{clause} argument must be an expression that can be simplified and/or cast to a constant"
            " whose type is mz_timestamp",
            position=position,
        )


def _at_first(part: Scalar) -> Scalar:
    """``mz_now()`` is some time."""
    if isinstance(part, Unmaterializable) and part.func == "mz_now":
        return Literal(0, MZ_TIMESTAMP)
    return part


def _is_constant(scalar: Scalar) -> bool:
    if support(scalar) or any(isinstance(part, Unmaterializable) for part in walk(scalar)):
        return False
    evaluator = Evaluator()
    try:
        (value,) = evaluator.evaluate([scalar])
    finally:
        evaluator.close()
    return value is not None and not isinstance(value, EvalError)
