"""Would the random tests notice? Each mutation breaks rendered steps in one way; some seed must then give a wrong answer."""

from __future__ import annotations

import pytest
from render_runner import duck
from sqlglot import expressions as exp
from test_render_steps import check

from mzsql.expr.engines import duckdb_connection


def on_times(node: exp.Binary) -> bool:
    return all(
        isinstance(side, exp.Column) and side.name == "mz_time"
        for side in (node.this, node.expression)
    )


def swap(kind: type[exp.Binary], other: type[exp.Binary], *, times: bool):
    def mutate(statement: exp.Expression) -> int:
        found = [n for n in statement.find_all(kind) if not times or on_times(n)]
        for node in found:
            node.replace(other(this=node.this.copy(), expression=node.expression.copy()))
        return len(found)

    return mutate


def without_having(statement: exp.Expression) -> int:
    found = [n for n in statement.find_all(exp.Having) if "SUM" in n.sql().upper()]
    for node in found:
        node.pop()
    return len(found)


def places_of_one(statement: exp.Expression) -> int:
    """A row takes one place, whatever its multiplicity."""
    found = [
        w
        for w in statement.find_all(exp.Window)
        if isinstance(w.this, exp.Sum) and w.parent_select and "mz_last" in w.parent_select.sql()
    ]
    for node in found:
        node.set("this", exp.Count(this=exp.Star()))
    return len(found)


def without_retraction(statement: exp.Expression) -> int:
    """What is emitted is the new state only."""
    found = [
        a
        for a in statement.find_all(exp.Anonymous)
        if a.this in ("UNNEST", "EXPLODE") and isinstance(a.expressions[0], exp.Array)
    ]
    for node in found:
        array = node.expressions[0]
        array.set("expressions", array.expressions[1:])
    return len(found)


MUTATIONS = [
    ("delta_self", swap(exp.LT, exp.LTE, times=True)),
    ("delta_self", swap(exp.LTE, exp.LT, times=True)),
    ("linear_three", swap(exp.LT, exp.LTE, times=True)),
    ("linear_two", swap(exp.LTE, exp.LT, times=True)),
    ("linear_two", swap(exp.NullSafeEQ, exp.EQ, times=False)),
    ("collation", swap(exp.NullSafeEQ, exp.EQ, times=False)),
    ("extremes", without_having),
    ("top_two", swap(exp.LTE, exp.LT, times=True)),
    ("top_two", places_of_one),
    ("sums", without_retraction),
    ("top_global", without_retraction),
]


def broken(mutate):
    """Runs statements in DuckDB, steps mutated."""
    run = duck(duckdb_connection())
    hits = []

    def wrong(statement, relations):
        if any(name.startswith("delta_") for name in relations):
            statement = statement.copy()
            hits.append(mutate(statement))
        return run(statement, relations)

    wrong.engine = run.engine
    wrong.hits = hits
    return wrong


@pytest.mark.parametrize(("name", "mutate"), MUTATIONS)
def test_a_broken_step_is_noticed(name, mutate):
    run = broken(mutate)
    with pytest.raises(AssertionError):  # noqa: PT012
        for seed in range(12):
            check(name, seed, run)
    assert sum(run.hits), "the mutation found nothing to break"
