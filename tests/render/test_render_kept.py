"""Statements that nobody looks at are bytes, and trees again for who does."""

from __future__ import annotations

import gc

from sqlglot import expressions as exp
from sqlglot import parse_one

from mzsql.render.kept import Kept

_TEXT = (
    'WITH a AS (SELECT CAST("c0" AS DECIMAL(38, 2)) AS "c0", list_transform([1, 2], lambda x : x + 1) FROM "d") '
    "SELECT * FROM a UNION ALL SELECT \"c0\", NULL FROM a WHERE \"c0\" = 'it''s'"
)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_statement_is_what_it_was() -> None:
    clock = Clock()
    tree = parse_one(_TEXT, dialect="duckdb")
    assert isinstance(tree, exp.Expression)
    kept = Kept(tree, clock)
    written = tree.sql("duckdb")
    assert kept.statement is tree
    clock.now = 5.0
    for seconds, warm in ((10.0, True), (5.0, False)):
        kept.cool(seconds)
        assert kept.warm(0) is warm
    for _ in range(2):
        found = kept.statement
        assert found == tree
        assert found.sql("duckdb") == written
        assert kept.statement is found
        # It is asked for: it stays a while.
        kept.cool(1.0)
        assert kept.warm(0)
        kept.cool(0.0)
        assert not kept.warm(0)


def test_nothing_is_left_of_the_tree() -> None:
    """The collector has nothing to go through for what is kept as bytes."""

    def nodes() -> int:
        gc.collect()
        return sum(isinstance(one, exp.Expression) for one in gc.get_objects())

    before = nodes()
    tree = parse_one(_TEXT, dialect="duckdb")
    assert isinstance(tree, exp.Expression)
    kept = Kept(tree)
    del tree
    assert nodes() > before
    kept.cool(0)
    assert nodes() == before


def test_a_statement_is_made_when_it_is_asked_for_and_once() -> None:
    clock, made = Clock(), list[exp.Expression]()

    def make() -> exp.Expression:
        tree = parse_one(_TEXT, dialect="duckdb")
        assert isinstance(tree, exp.Expression)
        made.append(tree)
        return tree

    kept = Kept(make, clock)
    kept.cool(0.0)
    assert not kept.warm(0)
    assert not made
    written = kept.statement.sql("duckdb")
    kept.cool(0.0)
    assert kept.statement.sql("duckdb") == written
    assert len(made) == 1
