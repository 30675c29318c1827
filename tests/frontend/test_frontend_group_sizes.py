"""Hints at the sizes of groups: OPTIONS (… INPUT GROUP SIZE = n)."""

from __future__ import annotations

import pytest
from memory_catalog import MemoryCatalog

from mzsql.expr import relation as mir
from mzsql.frontend import lower_query
from mzsql.repr.errors import SqlError


@pytest.fixture(scope="module")
def catalog() -> MemoryCatalog:
    made = MemoryCatalog()
    made.run("CREATE TABLE t (a int, b int)")
    return made


def _sizes(catalog: MemoryCatalog, sql: str) -> dict[str, int | None]:
    """The expected sizes of each kind of node that has one, by the node's name."""
    relation = lower_query(catalog.plan(sql).query).relation
    return {
        type(node).__name__: node.expected_group_size
        for node in mir.walk(relation)
        if isinstance(node, mir.Reduce | mir.TopK)
    }


@pytest.mark.parametrize(
    ("sql", "sizes"),
    [
        (
            "SELECT a, max(b) FROM t GROUP BY a OPTIONS (AGGREGATE INPUT GROUP SIZE = 17)",
            {"Reduce": 17},
        ),
        (
            "SELECT a, max(b) FROM t GROUP BY a OPTIONS (AGGREGATE INPUT GROUP SIZE 17)",
            {"Reduce": 17},
        ),
        (
            "SELECT DISTINCT ON (a) a, b FROM t OPTIONS (DISTINCT ON INPUT GROUP SIZE = 5)",
            {"TopK": 5},
        ),
        (
            "SELECT * FROM (SELECT a FROM t OPTIONS (LIMIT INPUT GROUP SIZE = 9) ORDER BY b LIMIT 2) q",
            {"TopK": 9},
        ),
        (
            "SELECT * FROM (SELECT DISTINCT a FROM t OPTIONS (LIMIT INPUT GROUP SIZE = 9) ORDER BY a LIMIT 2) q",
            {"Reduce": None, "TopK": 9},
        ),
        (
            "SELECT * FROM (SELECT a, max(b) AS m FROM t GROUP BY a"
            " OPTIONS (AGGREGATE INPUT GROUP SIZE = 3, LIMIT INPUT GROUP SIZE = 4) ORDER BY m LIMIT 1) q",
            {"Reduce": 3, "TopK": 4},
        ),
        (
            "SELECT * FROM (SELECT a, max(b) AS m FROM t GROUP BY a"
            " OPTIONS (EXPECTED GROUP SIZE = 8) ORDER BY m LIMIT 1) q",
            {"Reduce": 8, "TopK": 8},
        ),
        ("SELECT a, max(b) FROM t GROUP BY a", {"Reduce": None}),
    ],
)
def test_a_size_stands_at_the_node_that_it_is_about(
    catalog: MemoryCatalog, sql: str, sizes: dict[str, int | None]
) -> None:
    assert _sizes(catalog, sql) == sizes


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            "AGGREGATE INPUT GROUP SIZE = 'much'",
            "invalid AGGREGATE INPUT GROUP SIZE: cannot use value as number",
        ),
        (
            "LIMIT INPUT GROUP SIZE = 0.1",
            "invalid LIMIT INPUT GROUP SIZE: invalid unsigned numeric value",
        ),
        (
            "DISTINCT ON INPUT GROUP SIZE = -1",
            "invalid DISTINCT ON INPUT GROUP SIZE: invalid unsigned numeric value",
        ),
        (
            "AGGREGATE INPUT GROUP SIZE",
            "invalid AGGREGATE INPUT GROUP SIZE: must provide an unsigned integer value",
        ),
        (
            "LIMIT INPUT GROUP SIZE 1, LIMIT INPUT GROUP SIZE 2",
            "LIMIT INPUT GROUP SIZE specified more than once",
        ),
        (
            "EXPECTED GROUP SIZE 1, LIMIT INPUT GROUP SIZE 2",
            "EXPECTED GROUP SIZE cannot be provided simultaneously",
        ),
        ("GROUP SIZE 1", "Expected one of AGGREGATE INPUT GROUP SIZE"),
    ],
)
def test_a_size_that_is_none_is_refused(catalog: MemoryCatalog, options: str, message: str) -> None:
    with pytest.raises(SqlError) as caught:
        catalog.plan(f"SELECT a FROM t GROUP BY a OPTIONS ({options})")
    assert message in caught.value.message
