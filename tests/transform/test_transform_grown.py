"""Plans of thousands of nodes: what is joined with itself again and again does not double with each time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typecheck_kit import typecheck

from mzsql.expr import relation as mir
from mzsql.expr.evaluate import Evaluator
from mzsql.frontend import lower_query
from mzsql.frontend.plan import plans
from mzsql.repr.depth import deep
from mzsql.transform import OptimizerContext, pipeline

sys.path.append(str(Path(__file__).parents[1] / "frontend"))
from memory_catalog import MemoryCatalog

#: About so many nodes before they are optimized.
NODES = 2000


def joined_with_themselves() -> str:
    number = NODES // 9
    names = ["c0 AS (SELECT k, a, b FROM facts)"]
    names.extend(
        f"c{i} AS (SELECT x.k, x.a + y.b AS a, y.b FROM c{i - 1} x JOIN c{i - 1} y ON x.k = y.a WHERE y.b <> {i})"
        for i in range(1, number + 1)
    )
    return f"WITH {', '.join(names)} SELECT * FROM c{number}"


def united() -> str:
    return " UNION ALL ".join(
        f"SELECT f.k, f.a, n.name FROM facts f JOIN names n ON f.a = n.id + {i} WHERE f.b > {i}"
        for i in range(NODES // 11)
    )


def grouped_in_layers() -> str:
    query = "SELECT k, a, b FROM facts"
    for i in range(NODES // 11):
        query = (
            f"SELECT q.k, max(q.a + n.id) AS a, count(*) + {i} AS b FROM ({query}) q "
            f"JOIN names n ON q.b = n.id WHERE q.a > {i} GROUP BY q.k"
        )
    return query


@pytest.fixture(scope="module")
def evaluator() -> Iterator[Evaluator]:
    evaluator = Evaluator()
    yield evaluator
    evaluator.close()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("text", [joined_with_themselves, united, grouped_in_layers])
def test_a_large_plan_is_optimized_to_one_no_larger(
    evaluator: Evaluator, text: Callable[[], str]
) -> None:
    catalog = MemoryCatalog()
    catalog.run(
        "CREATE TABLE facts (k bigint NOT NULL, a bigint, b bigint, c bigint);"
        "CREATE TABLE names (id bigint NOT NULL, name text NOT NULL);"
    )
    with deep():
        planned = catalog.plan(text())
        assert isinstance(planned, plans.SelectPlan)
        before = lower_query(planned.query).relation
        after = pipeline.optimize(before, OptimizerContext(evaluator))
        typecheck(after, None)
    assert sum(1 for _ in mir.walk(before)) > 0.9 * NODES
    assert sum(1 for _ in mir.walk(after)) < 2 * NODES
    assert max(map(mir.arity, mir.walk(after))) <= 250
