"""Whatever the text, what comes out is a plan or a SqlError."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as some
from memory_catalog import MemoryCatalog
from test_frontend_queries import QUERIES
from test_frontend_statements import VIEWS

from mzsql.frontend import lower_query, parse_statements, plan_statement
from mzsql.repr.errors import InternalError, SqlError

SCHEMA = """
CREATE TABLE t (a int, b int, s text);
CREATE TABLE u (c int, d int);
CREATE TABLE w (a int, b int, x numeric(10,2), y date);
CREATE TABLE empty (a int);
CREATE VIEW v AS SELECT a, b FROM t;
"""
TEXTS = [
    *QUERIES.strip().splitlines(),
    *VIEWS,
    "INSERT INTO t (a, b) VALUES (1, DEFAULT), (2, (SELECT max(c) FROM u))",
    "UPDATE t SET a = b + 1, s = DEFAULT WHERE a IN (SELECT c FROM u)",
    "DELETE FROM t USING u WHERE t.a = u.c",
    "COPY t (a, b) FROM '/x.csv' (FORMAT CSV, HEADER, DELIMITER '|', NULL '')",
    "EXPLAIN PHYSICAL PLAN WITH (node_ids, arity) AS TEXT FOR SELECT a FROM t",
    "SHOW INDEXES ON t IN CLUSTER quickstart LIKE '%'",
    "SET search_path = public, other; RESET cluster; BEGIN ISOLATION LEVEL SERIALIZABLE; COMMIT",
    "SELECT sum(a) OVER (PARTITION BY b ORDER BY s ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM t AS OF 3",
]
WORDS = sorted(
    {word for text in TEXTS for word in text.replace("(", " ( ").replace(")", " ) ").split()}
)


@pytest.fixture(scope="module")
def catalog() -> MemoryCatalog:
    made = MemoryCatalog()
    made.run(SCHEMA)
    return made


def outcome(catalog: MemoryCatalog, text: str) -> SqlError | None:
    """What became of a text: the error it ended in, or None. Any other exception passes through."""
    try:
        for statement in parse_statements(text):
            plan = plan_statement(statement, catalog)
            for name in ("query", "source", "selection"):
                query = getattr(plan, name, None)
                if query is not None:
                    lower_query(query)
    except SqlError as error:
        return error
    return None


def survive(catalog: MemoryCatalog, text: str) -> None:
    error = outcome(catalog, text)
    if error is not None:
        assert not isinstance(error, InternalError), text
        assert error.message, text
        assert error.position is None or 1 <= error.position <= len(text) + 1, text


def test_the_texts_are_good_to_begin_with(catalog: MemoryCatalog) -> None:
    refused = {text for text in TEXTS if outcome(catalog, text) is not None}
    assert refused == {*(text for text in VIEWS if '"Odd Name"' in text)}


def test_truncated_statements(catalog: MemoryCatalog) -> None:
    for text in TEXTS:
        for end in range(0, len(text), 3):
            survive(catalog, text[:end])


def test_statements_with_a_word_missing_doubled_or_strange(catalog: MemoryCatalog) -> None:
    rng = random.Random(1)
    for _ in range(1500):
        words = rng.choice(TEXTS).split(" ")
        at = rng.randrange(len(words))
        match rng.randrange(4):
            case 0:
                del words[at]
            case 1:
                words.insert(at, words[at])
            case 2:
                words[at] = rng.choice(WORDS)
            case _:
                words.insert(at, rng.choice(WORDS))
        survive(catalog, " ".join(words))


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=some.lists(some.sampled_from(WORDS), max_size=14).map(" ".join))
def test_words_in_any_order(catalog: MemoryCatalog, text: str) -> None:
    survive(catalog, text)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(text=some.text(max_size=60))
@example("'")
@example("$$")
@example("/*")
@example('"')
@example("\\")
@example("E'\\")
@example("SELECT 1e999999999")
@example("SELECT .")
@example("SELECT a {")
@example("SELECT 1 = b{ FROM t")
@example("SELECT 0x")
@example("SELECT U&'\\'")
def test_any_characters(catalog: MemoryCatalog, text: str) -> None:
    survive(catalog, text)
    survive(catalog, f"SELECT {text}")


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=some.binary(max_size=60))
def test_any_bytes(catalog: MemoryCatalog, data: bytes) -> None:
    survive(catalog, data.decode("latin-1"))
