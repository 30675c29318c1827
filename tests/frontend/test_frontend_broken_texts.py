"""Texts that are almost statements: each ends in an error of SQL, and what the parser itself does wrong ends in its own exception."""

from __future__ import annotations

import pytest
from memory_catalog import MemoryCatalog
from test_frontend_fuzz import SCHEMA, survive

import mzsql
from mzsql.frontend.grammar.dialect import Parser
from mzsql.frontend.grammar.tokens import tokenize
from mzsql.frontend.parse.parse import parse_statements
from mzsql.repr.errors import SqlSyntaxError

#: One text for each grammar of its own.
TEXTS = r"""
SELECT CASE a WHEN 1 THEN 2 ELSE 3 END, CAST(a AS int), a::numeric(10,2), EXTRACT(year FROM now()), OVERLAY('a' PLACING 'b' FROM 1 FOR 2)
SELECT SUBSTRING('a' FROM 1 FOR 2), TRIM(BOTH 'a' FROM 'b'), NORMALIZE('a', NFC), POSITION('a' IN 'b')
SELECT MAP['a'=>1], LIST[1,2], ARRAY[[1],[2]], ROW(1,2), (ROW(1,2)).f1, a[1:2], MAP(SELECT 'a', 1), LIST(SELECT 1) FROM t
SELECT a FROM t JOIN u ON a = c LEFT JOIN w USING (a) NATURAL JOIN v CROSS JOIN LATERAL (SELECT 1) x WHERE a IN (1,2) AND b BETWEEN 1 AND 2
SELECT a FROM t GROUP BY ROLLUP (a, b), GROUPING SETS ((a), ()) HAVING count(*) FILTER (WHERE a > 1) > 2 ORDER BY a DESC NULLS LAST LIMIT 3
WITH MUTUALLY RECURSIVE (RECURSION LIMIT 10) x (a int, b text) AS (SELECT 1, 'x' UNION ALL SELECT a+1, b FROM x) SELECT * FROM x
CREATE TYPE m AS MAP (KEY TYPE = text, VALUE TYPE = int)
CREATE TABLE q (a int NOT NULL DEFAULT 5, b numeric(10,2) PRIMARY KEY, d int[], e map[text=>int], f int list list)
CREATE MATERIALIZED VIEW mv IN CLUSTER c WITH (REFRESH EVERY '1 day' ALIGNED TO now(), ASSERT NOT NULL a) AS SELECT * FROM t
CREATE INDEX i IN CLUSTER c ON t USING ARRANGEMENT (a, b + 1) WITH (RETAIN HISTORY = FOR '1d')
SELECT sum(a) OVER w, lag(a, 1, 2) IGNORE NULLS OVER (PARTITION BY a ORDER BY b RANGE BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING) FROM t
SELECT * FROM ROWS FROM (generate_series(1,2), unnest(ARRAY[1])) WITH ORDINALITY AS x(a,b,c)
SELECT INTERVAL '1 2' DAY TO SECOND(3), DATE '2020-01-01', a AT TIME ZONE 'UTC', a COLLATE "C", a -> 'b' ->> 0, $1, map 'x'
COPY (SELECT 1) TO STDOUT WITH (FORMAT CSV, HEADER true, QUOTE '"', NULL 'x')
ALTER DEFAULT PRIVILEGES FOR ROLE a GRANT SELECT ON TABLES TO b
DECLARE c CURSOR FOR SELECT 1; FETCH FORWARD 3 c WITH (TIMEOUT = '1s'); CLOSE c
SUBSCRIBE (SELECT * FROM t) WITH (PROGRESS, SNAPSHOT = false) AS OF 3 UP TO 5 ENVELOPE UPSERT (KEY (a))
SELECT DISTINCT ON (a) a, b FROM t OPTIONS (AGGREGATE INPUT GROUP SIZE = 5) QUALIFY row_number() OVER () = 1
SELECT a = ANY (SELECT 1), a <> ALL (ARRAY[1]), EXISTS (SELECT 1), a IS NOT DISTINCT FROM 1 FROM t FETCH FIRST 2 ROWS WITH TIES
""".strip().splitlines()
ODD = ("(", ",", "'x'", "5", "SELECT", "{", "map", "=>")


@pytest.fixture(scope="module")
def catalog() -> MemoryCatalog:
    made = MemoryCatalog()
    made.run(SCHEMA)
    return made


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: text[:24])
def test_a_token_missing_doubled_or_odd(catalog: MemoryCatalog, text: str) -> None:
    tokens = [text[token.start : token.end + 1] for token in tokenize(text)]
    for at in range(len(tokens)):
        before, after = tokens[:at], tokens[at + 1 :]
        survive(catalog, " ".join(before))
        survive(catalog, " ".join([*before, *after]))
        survive(catalog, " ".join([*before, tokens[at], tokens[at], *after]))
        odd = ODD[at % len(ODD)]
        survive(catalog, " ".join([*before, odd, *after]))
        survive(catalog, " ".join([*before, odd, tokens[at], *after]))


@pytest.mark.parametrize("bug", [AttributeError, TypeError, ValueError, IndexError, KeyError])
def test_a_bug_of_the_parser_is_no_syntax_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory, bug: type[Exception]
) -> None:
    def broken(_: Parser) -> None:
        raise bug("lost")

    monkeypatch.setattr(Parser, "parse_query", broken)
    with pytest.raises(bug, match="lost"):
        parse_statements("SELECT 1")
    with mzsql.connect(tmp_path_factory.mktemp("env")) as con:
        with pytest.raises(mzsql.InternalError, match=f"internal error: {bug.__name__}"):
            con.execute("SELECT 1")
        with pytest.raises(mzsql.InternalError, match=f"internal error: {bug.__name__}"):
            con.cursor().takes_data("SELECT 1")


@pytest.mark.parametrize(
    ("text", "what", "position"),
    [
        ("SELECT 'a", "quoted string", 8),
        ("SELECT 'a' 'it''s", "quoted string", 12),
        (r"SELECT E'\'", "quoted string", 9),
        ("SELECT 1 -- '\n + 'x", "quoted string", 18),
        ('SELECT "a""b', "quoted identifier", 8),
        ("SELECT '/*', /* a /* b */", "multiline comment", 14),
        ("SELECT $x$ a $$", "dollar-quoted string", 8),
    ],
)
def test_what_does_not_end_is_told_where_it_begins(text: str, what: str, position: int) -> None:
    with pytest.raises(SqlSyntaxError, match=f"unterminated {what}") as caught:
        parse_statements(text)
    assert caught.value.position == position


@pytest.mark.parametrize(
    "text",
    [
        "(" * 50_000,
        "SELECT " + "CASE WHEN TRUE THEN " * 10_000,
        "SELECT " + "NOT " * 20_000,
        "/*" * 100_000,
    ],
    ids=["brackets", "cases", "nots", "comments"],
)
def test_huge_texts_are_refused(text: str) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse_statements(text)
    assert caught.value.sqlstate in ("54001", "42601")
