"""Which stages of hydrations may put out more rows than they read: their results are streamed, as a copy has no bound."""

from __future__ import annotations

import pytest
from test_render_queries import SMALL, MemoryCatalog, planned

from mzsql.compute.replica.hydration.here import makes_no_rows
from mzsql.expr.functions.table import Engine
from mzsql.render.dataflow import render


@pytest.mark.parametrize(
    ("query", "bounded"),
    [
        ("SELECT a + 1 FROM t WHERE b > 2", True),
        ("SELECT a, count(*), sum(b) FROM t GROUP BY a", True),
        ("SELECT DISTINCT a FROM t UNION ALL SELECT b FROM t", True),
        ("SELECT x.a, y.b FROM t x, t y", False),
        ("SELECT a, g FROM t, generate_series(1, a) g", False),
        ("SELECT g FROM generate_series(1, 1000000) g", False),
        ("SELECT a, unnest(ARRAY[a, b, a]) FROM t", False),
    ],
)
def test_only_what_reads_as_many_rows_is_few(query: str, bounded: bool) -> None:
    catalog = MemoryCatalog()
    catalog.run(SMALL)
    stages = render(planned(catalog, query), errors_in=lambda _: False).hydration(Engine.DUCKDB, 5)
    assert all(makes_no_rows(one.statement) for one in stages) == bounded, [
        one.statement.sql("duckdb") for one in stages
    ]
