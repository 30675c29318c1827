"""What sqlglot takes from other dialects is an error at its place, and what only looks like it is not."""

from __future__ import annotations

import pytest

from mzsql.frontend.parse.parse import parse_statements
from mzsql.repr.errors import SqlSyntaxError


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("SELECT a NOT NULL FROM t", "Expected end of statement, found NOT", "NOT"),
        ("SELECT extract(year, now())", "Expected FROM, found comma", ","),
        ("SELECT abs(1 AS x)", "Expected right parenthesis, found AS", "AS"),
        ("SELECT abs(1 x)", 'Expected right parenthesis, found identifier "x"', "x)"),
        ("SELECT * FROM t AS (x, y)", "Expected identifier, found left parenthesis", "("),
        ("SELECT * FROM t AS u (x int)", "Expected right parenthesis, found INT", "int"),
        (
            "WITH x (a int) AS (SELECT 1) SELECT 1",
            "Expected right parenthesis, found INT",
            "int",
        ),
        ("SELECT * FROM t LIMIT 1, 2", "Expected end of statement, found comma", ","),
        ("SELECT * FROM t ORDER BY a ASC DESC", "Expected end of statement, found DESC", "DESC"),
        ("SELECT a FROM t GROUP BY a WITH ROLLUP", "Expected end of statement, found WITH", "WITH"),
        ("SELECT sum(a) OVER FROM t", "Expected left parenthesis, found FROM", "FROM"),
        (
            "SELECT sum(a) OVER (ROWS BETWEEN 1 PRECEDING) FROM t",
            "Expected AND, found right parenthesis",
            ") FROM",
        ),
        ("VALUES ()", "Expected an expression, found right parenthesis", ")"),
        ("SELECT !true", 'Expected an expression, found operator "!"', "!"),
        ("SELECT a == 1", 'Expected an expression, found operator "="', "= 1"),
        ("SELECT a <=> 1", 'Expected an expression, found operator ">"', "> 1"),
        ("SELECT b REGEXP 'x'", 'Expected end of statement, found string literal "x"', "'x'"),
        ("CREATE TABLE t (a array<int>)", 'Expected right parenthesis, found operator "<"', "<"),
        (
            "CREATE TABLE t (a map<text, int>)",
            'Expected right parenthesis, found operator "<"',
            "<",
        ),
        (
            "CREATE TABLE t (a map(text, int))",
            "Expected left square bracket, found left parenthesis",
            "(text",
        ),
        (
            "CREATE TABLE t (a int unsigned)",
            'Expected right parenthesis, found identifier "unsigned"',
            "unsigned",
        ),
        ("SELECT CAST('1' AS list<int>)", "Expected an expression, found right parenthesis", ")"),
        ("SELECT b XOR c", 'Expected end of statement, found identifier "c"', "c"),
    ],
)
def test_what_other_dialects_have_is_an_error_at_its_place(
    text: str, message: str, at: str
) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse_statements(text)
    assert str(caught.value).splitlines()[0] == message
    assert caught.value.position == text.index(at) + 1


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 null",
        "SELECT a IN (1, 2) null FROM t",
        "SELECT a IS NOT NULL, a ISNULL, a NOTNULL, NOT a, a <> 1, a != 1 FROM t",
        "CREATE TABLE t (a int DEFAULT 1 NOT NULL, b text NULL DEFAULT 'x' NOT NULL)",
        "SELECT * FROM jsonb_to_record('{}') AS (a int, b text)",
        "SELECT * FROM jsonb_to_record('{}') AS r (a int, b text)",
        "SELECT * FROM t GROUP BY ROLLUP (a), CUBE (b, c)",
        "SELECT sum(a) OVER (ROWS BETWEEN 1 PRECEDING AND CURRENT ROW), sum(a) OVER w FROM t WINDOW w AS (ROWS 1 PRECEDING)",
        "SELECT * FROM t ORDER BY a ASC, b DESC LIMIT 1 OFFSET 2",
        "SELECT extract(year FROM now()), substring('abc' FROM 1 FOR 2), substring('abc', 1, 2)",
        "SELECT pivot, xml, regexp, struct FROM glob AS anti JOIN point ON xor",
        "SELECT 1::int unsigned, 2::text unsigned, 3::numeric(10, 2) unsigned",
        "SELECT range < 3, struct < 4, struct > 2 FROM t",
        "CREATE TABLE t (a map[text => int list], b int list list, c text[][], d int list[])",
        "SELECT count(DISTINCT a), max(a ORDER BY b), string_agg(b, ',' ORDER BY a) FROM t",
    ],
)
def test_what_the_dialect_has_is_parsed(text: str) -> None:
    assert len(parse_statements(text)) == 1
