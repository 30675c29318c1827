"""Queries that were parsed lately are not parsed again, and planning their trees again means the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from memory_catalog import MemoryCatalog
from sqlglot import expressions as exp

from mzsql.frontend import RecentTexts, parse_statements, plan_statement
from mzsql.frontend.parse import parse
from mzsql.frontend.parse import statements as st
from mzsql.repr.errors import SqlError, SqlSyntaxError

_RECORDS = Path(__file__).parents[1] / "records"


def _told(statement: st.Statement) -> list[str]:
    """Everything that a query's trees consist of, what the parser noted beside the nodes included. Not which node is a node's parent:
    planning may write another one around it, and asks no node for its parent.
    """
    assert isinstance(statement, st.Select)
    trees = [tree for tree in (statement.query, statement.as_of) if tree is not None]
    return [
        f"{type(node).__name__} {node.meta!r} {list(node.args)}"
        for tree in trees
        for node in tree.walk()
    ] + [repr(tree) for tree in trees]


def _catalog() -> MemoryCatalog:
    catalog = MemoryCatalog()
    for text in (_RECORDS / "tables.sql").read_text().split(";\n"):
        if text.strip().startswith(("CREATE TABLE", "CREATE VIEW")):
            catalog.run(text)
    return catalog


@pytest.mark.parametrize("kind", ["queries", "expressions"])
def test_planning_a_query_changes_nothing_in_its_trees(kind: str) -> None:
    catalog, planned = _catalog(), 0
    files = sorted((_RECORDS / kind).glob("*.txt"))
    lines = [line for file in files for line in file.read_text().splitlines() if line]
    for line in lines:
        text = line.partition("\t")[0]
        try:
            (statement,) = parse_statements(text if kind == "queries" else f"SELECT {text}")
        except SqlError:
            continue
        before = _told(statement)
        try:
            first = plan_statement(statement, catalog)
            planned += 1
        except SqlError:
            first = None
        assert _told(statement) == before, text
        if first is not None:
            assert plan_statement(statement, catalog) == first, text
    assert planned > len(lines) / 2


def test_a_text_that_comes_again_is_parsed_no_more_and_means_what_each_catalog_says() -> None:
    recent = RecentTexts()
    text = "SELECT (SELECT * FROM r), CASE WHEN true THEN (SELECT * FROM r) END"
    assert recent.parse(text)
    assert not recent._kept
    found = []
    for column in ("one", "other"):
        catalog = MemoryCatalog()
        catalog.run(f"CREATE TABLE r ({column} integer)")
        (statement,) = recent.parse(text)
        found.append((statement, plan_statement(statement, catalog).query.desc.names))
    assert [names for _, names in found] == [("one", "case"), ("other", "case")]
    assert found[0][0] is found[1][0]


def test_what_is_no_query_or_is_long_or_wrong_is_parsed_each_time() -> None:
    recent = RecentTexts()
    long = "SELECT " + ", ".join(["1"] * parse.LONGEST)
    for text in ("INSERT INTO t VALUES (1)", "SELECT 1; DROP TABLE t", long):
        first, second = recent.parse(text), recent.parse(text)
        assert first == second
        assert all(a is not b for a, b in zip(first, second, strict=True))
    for _ in range(2):
        with pytest.raises(SqlSyntaxError, match="Expected"):
            recent.parse("SELECT 1 +")
    assert recent.parse(" ; ") == []


def test_the_texts_that_are_kept_are_bounded_and_the_used_ones_stay() -> None:
    recent = RecentTexts()
    kept = [recent.parse("SELECT 'kept'") for _ in range(2)][-1][0]
    filler = "x" * (parse.LONGEST // 2)
    for i in range(100):
        for _ in range(2):
            recent.parse(f"SELECT '{filler}{i}'")
        assert recent.parse("SELECT 'kept'")[0] is kept
    assert sum(map(len, recent._kept)) == recent._characters <= parse.MOST_CHARACTERS
    assert isinstance(kept.query, exp.Select)


def test_of_texts_that_came_once_only_so_many_are_known() -> None:
    recent = RecentTexts()
    for i in range(3 * parse.MOST_ONCE):
        recent.parse(f"SELECT {i}")
    assert len(recent._once) == parse.MOST_ONCE
    assert not recent._kept
    assert recent._characters == 0
