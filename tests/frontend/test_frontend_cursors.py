"""Statements of subscriptions, cursors and prepared statements: what the text means, whatever it is."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from memory_catalog import MemoryCatalog

from mzsql.frontend import parse_statements
from mzsql.frontend.grammar.tokens import tokenize
from mzsql.frontend.plan import cursor_plans
from mzsql.frontend.scalar import placeholders
from mzsql.repr import types as t
from mzsql.repr.errors import SqlError


@pytest.fixture
def catalog():
    found = MemoryCatalog()
    found.run("CREATE TABLE t (a int, b text, mz_diff int)")
    return found


def test_clauses_of_subscribe_come_in_any_order(catalog):
    whole = "SUBSCRIBE TO t {} {} {} {}"
    clauses = ["WITH (PROGRESS)", "AS OF 3", "UP TO 5", "ENVELOPE UPSERT (KEY (a))"]
    first = catalog.plan(whole.format(*clauses))
    assert first == catalog.plan(whole.format(*reversed(clauses)))
    assert isinstance(first, cursor_plans.SubscribePlan)
    assert (first.progress, first.snapshot, first.keys) == (True, True, (0,))


def test_only_what_is_one_collection_is_read_directly(catalog):
    catalog.run("CREATE VIEW v AS SELECT a FROM t")
    assert catalog.plan("SUBSCRIBE t").collection is not None
    assert catalog.plan("SUBSCRIBE v").collection is None
    assert catalog.plan("SUBSCRIBE (SELECT * FROM t)").collection is None


def test_order_by_names_or_numbers_columns_of_the_output(catalog):
    plan = catalog.plan(
        "SUBSCRIBE (SELECT a, b FROM t) WITHIN TIMESTAMP ORDER BY 1 DESC, b, mz_diff"
    )
    assert [(o.column, o.desc, o.nulls_last) for o in plan.order] == [
        (2, True, False),
        (1, False, True),
        (2, False, True),
    ]


def test_a_column_called_mz_diff_comes_before_the_one_of_the_output(catalog):
    plan = catalog.plan("SUBSCRIBE t WITHIN TIMESTAMP ORDER BY mz_diff")
    assert [o.column for o in plan.order] == [2]


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("SELECT a + $1, $2 FROM t WHERE b = $3", ("integer", "text", "text")),
        ("INSERT INTO t VALUES ($1,$2, $1)", ("integer", "text")),
        ("UPDATE t SET b = $1 WHERE a IN ($2, $3)", ("text", "integer", "integer")),
        ("SELECT $1::date, CASE WHEN $2 THEN 1 END", ("date", "boolean")),
        ("SELECT 1", ()),
    ],
)
def test_types_of_parameters_are_inferred(catalog, text, types):
    plan = catalog.plan(f"PREPARE p AS {text}")
    assert isinstance(plan, cursor_plans.PreparePlan)
    assert tuple(typ.kind for typ in plan.types) == types
    assert plan.text == text


def test_declared_types_count(catalog):
    plan = catalog.plan("PREPARE p (bigint, numeric(10, 2)) AS SELECT $1, $2")
    assert plan.types[0] == t.BIGINT
    assert plan.types[1] == t.SqlType("numeric", scale=2)
    with pytest.raises(SqlError, match="operator does not exist"):
        catalog.plan("PREPARE p (date) AS SELECT $1 + a FROM t WHERE b LIKE $1")


_PIECES = st.sampled_from(
    ["$1", "$2", ",", " ", "'$1'", '"$2"', "-- $1\n", "/* $2 */", "a", "E'\\'$1'", "("]
)


@given(st.lists(_PIECES, max_size=12))
def test_only_parameters_are_replaced(pieces):
    # What stands right behind a name belongs to it.
    assume(all(a not in ("a", "$1", "$2") or b[0] not in "$E" for a, b in pairwise(pieces)))
    text = "".join(pieces)
    try:
        done = placeholders.substitute(text, [t.INTEGER, t.TEXT], ["7", "'x'"])
    except SqlError:
        return  # a bracket that does not end, or letters right behind a number
    expected = "".join(
        {"$1": "CAST((7) AS integer)", "$2": "CAST(('x') AS text)"}.get(piece, piece)
        for piece in pieces
    )
    assert done == expected


@given(st.text(st.sampled_from("$1a_',\" \n-/*()"), max_size=14))
def test_a_text_with_dollars_has_the_positions_of_its_tokens(text):
    try:
        tokens = tokenize(text)
    except SqlError as failure:
        assert failure.position is None or 1 <= failure.position <= len(text) + 1  # noqa: PT017
        return
    for token in tokens:
        assert 0 <= token.start <= token.end < len(text)


_WORDS = (
    "SUBSCRIBE TO t ( ) SELECT a FROM WITH PROGRESS SNAPSHOT = , false AS OF AT LEAST 3 UP ENVELOPE UPSERT DEBEZIUM KEY WITHIN "
    "TIMESTAMP ORDER BY DECLARE c CURSOR FOR FETCH ALL FORWARD timeout '1s' CLOSE PREPARE p int EXECUTE $1 DEALLOCATE DISCARD "
    "TEMP COPY STDIN STDOUT FORMAT csv HEADER SHOW TABLES -"
)


@given(st.lists(st.sampled_from(_WORDS.split()), max_size=14))
def test_whatever_is_written_is_a_statement_or_a_plain_error(words):
    catalog = MemoryCatalog()
    catalog.run("CREATE TABLE t (a int)")
    try:
        for statement in parse_statements(" ".join(words)):
            catalog.plan(statement.source.statement)
    except SqlError as failure:
        assert failure.sqlstate != "XX000", failure  # noqa: PT017


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a$1", ["a$1"]),
        ("sys$2024", ["sys$2024"]),
        ("é$1 a$$1", ["é$1", "a$$1"]),
        ("a$$, $1, b$$", ["a$$", ",", "@", "1", ",", "b$$"]),
        ("/* /* */ ' */ '$1'", ["$1"]),
        ("/* /* */ ' */ $1", ["@", "1"]),
        ("date'\\', $1", ["date", "\\", ",", "@", "1"]),
        ("$$ $1 $$, $1", [" $1 ", ",", "@", "1"]),
    ],
)
def test_only_parameters_are_taken_for_parameters(text: str, found: list[str]) -> None:
    assert [token.text for token in tokenize(text)] == found
