"""Clauses that are cut short or miss a word are errors where they are, not queries that mean something else."""

from __future__ import annotations

import pytest

from mzsql.frontend import parse_statements
from mzsql.repr.errors import SqlError, SqlSyntaxError

# statement, message, the text at the position (None: the end)
CASES = [
    ("SELECT * FROM t AS", "Expected identifier, found EOF", None),
    ("SELECT * FROM (SELECT 1) AS", "Expected identifier, found EOF", None),
    ("SELECT * FROM t,", "Expected identifier, found EOF", None),
    ("SELECT * FROM t, t t2, WHERE true", "Expected identifier, found WHERE", "WHERE"),
    ("SELECT a FROM 't'", 'Expected identifier, found string literal "t"', "'t'"),
    ("SELECT a FROM t JOIN 'x' ON true", 'Expected identifier, found string literal "x"', "'x'"),
    ("SELECT DISTINCT ON a FROM t", 'Expected left parenthesis, found identifier "a"', "a FROM"),
    ("SELECT count(a) FILTER (a > 1) FROM t", 'Expected WHERE, found identifier "a"', "a > 1"),
    ("VALUES 1", 'Expected left parenthesis, found number "1"', "1"),
    ("VALUES (1), 2", 'Expected left parenthesis, found number "2"', "2"),
    ("INSERT INTO t VALUES 1", 'Expected left parenthesis, found number "1"', "1"),
    ("SELECT a FROM t WINDOW w", "Expected AS, found EOF", None),
    ("SELECT a FROM t WINDOW w (ORDER BY a)", "Expected AS, found left parenthesis", "(ORDER"),
    ("SELECT a FROM t FETCH FIRST 1", "Expected one of ROW or ROWS, found EOF", None),
    ("SELECT a FROM t FETCH FIRST 1 ROWS", "Expected one of ONLY or WITH TIES, found EOF", None),
]
WHOLE = [
    "SELECT * FROM t AS x, u AS y (b), LATERAL (SELECT 1) AS z",
    "SELECT DISTINCT ON (a) a, count(b) FILTER (WHERE b > 1) FROM t GROUP BY a",
    "SELECT sum(a) FILTER (WHERE a > 1) OVER w FROM t WINDOW w AS (ORDER BY a), x AS ()",
    "SELECT a FROM t FETCH FIRST ROW ONLY",
    "SELECT a FROM t FETCH NEXT (1 + 1) ROWS ONLY",
    "INSERT INTO t VALUES (1), (DEFAULT)",
    "SELECT * FROM (VALUES (1), (2)) AS v",
]


@pytest.mark.parametrize(("statement", "message", "at"), CASES)
def test_what_is_missed_is_told_where(statement: str, message: str, at: str | None) -> None:
    with pytest.raises(SqlSyntaxError) as raised:
        parse_statements(statement)
    assert str(raised.value).split("\n")[0] == message
    if at is not None:
        position = raised.value.position
        assert position is not None
        assert statement[position - 1 :].startswith(at)


@pytest.mark.parametrize("statement", WHOLE)
def test_whole_clauses_are_read(statement: str) -> None:
    try:
        parse_statements(statement)
    except SqlError as error:
        pytest.fail(str(error))
