"""Functions of texts, moments and rows through a connection: what PostgreSQL knows has PostgreSQL's answer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from answers_kit import check_same, expected, rows_of

import mzsql

_TEXTS = [
    "", "a", "abc", "aXbXc", "foobarbaz", "héllo wörld", "line\nbreak", "end\n", "2024-02-29", "a1b22c333", "[x]{2}", "  ", "ÄÖ", "x&y",
    "_under score_", "tab\there",
]  # fmt: skip
#: What RE2, Java and PostgreSQL write alike.
_PATTERNS = [
    "b", "^a", "c$", "d$", "a.c", "e.b", "(o+)(b)?", "([0-9]+)-([0-9]+)", "(x)|(y)", "[[:xdigit:]]+", "[[:digit:][:space:]]", "[^a-z]",
    "[[]", "\\w+", "\\d\\d", "\\s", "\\W", "[\\w&]+$", "(a)(b)?(c)?", "(?:fo)+", "a{1,2}", "\\[x\\]\\{2\\}", "^$", "Ä", "ö",
]  # fmt: skip
#: Expressions over a text `x` and a pattern that both sides know.
_OVER_PATTERNS = [
    "x ~ {0}",
    "x ~* {0}",
    "x !~ {0}",
    "regexp_match(x, {0})::text",
    "regexp_match(x, {0}, 'i')::text",
    "regexp_replace(x, {0}, '<#>')",
    "regexp_replace(x, {0}, '<#>', 'g')",
]
_SPLIT_PATTERNS = [
    "b",
    "X",
    ",",
    "[0-9]+",
    "\\s",
    "o",
    "(o)b",
    "",
    "\\s*",
    "o*",
    "^.",
    "^",
    "$",
    ".$",
    "(?:)",
    "[a-z]*",
]
_SAME = [
    "SELECT upper(t), lower(t), initcap(t), reverse(t) FROM (VALUES ('ßxß ǆy'), ('e\u0301x'), ('İI ıΣς')) AS v (t) ORDER BY 2",
    "SELECT quote_ident('a'), quote_ident('A b'), quote_ident('select'), quote_ident('a\"b'), quote_ident(''), quote_ident('int')",
    "SELECT quote_literal('it''s'), quote_literal(E'a\\\\b'), quote_nullable(NULL::text), quote_literal(42), quote_nullable('x'::text)",
    "SELECT parse_ident('a.b')::text, parse_ident('\"A b\" . C')::text, parse_ident('x.y z', false)::text",
    'SELECT parse_ident(\'É."q""r"\')::text',
    "SELECT overlay('Txxxxas' PLACING 'hom' FROM 2 FOR 4), overlay('abcdef' PLACING 'X' FROM 3), overlay('ab' PLACING 'c' FROM 9)",
    "SELECT length('\\xc3a4'::bytea, 'UTF8'), length('abc'::bytea, 'LATIN1'), length('\\xe4bda0e5a5bd'::bytea, 'big5')",
    "SELECT localtimestamp <= now()::timestamp, pg_backend_pid() > 0, pg_is_in_recovery(), pg_encoding_to_char(6)",
    "SELECT pg_size_pretty(x) FROM (VALUES (0), (10239), (10240), (-20000000), (20971520), (1234567890123), (9223372036854775807)) v (x)",
    "SELECT timestamptz '2020-01-15 12:00:00+00' AT TIME ZONE z, (timestamp '2020-07-15 12:00' AT TIME ZONE z)::text"
    " FROM (VALUES ('UTC'), ('america/New_York'), ('+5'), ('-03:30'), (NULL)) AS v (z) ORDER BY z",
    "SELECT 'a'::char(3) || 'b', length('a'::char(3)), 'a\\\\b\\101'::bytea = '\\x615c6241', position('b' IN 'ab' || 'c')",
    "SELECT 'a%c' LIKE 'a%%c' ESCAPE '%', 'axxc' LIKE 'a%%c' ESCAPE '%', 'a\\c' LIKE 'a!\\c' ESCAPE '!', 'a\\c' LIKE 'a\\c' ESCAPE '!',"
    " 'a_c' LIKE 'a__c' ESCAPE '_', 'a\\bc' LIKE 'a\\%' ESCAPE '', 'axc' NOT LIKE 'a!_c' ESCAPE '!', 'A%c' ILIKE 'a!%C' ESCAPE '!'",
    "SELECT pg_catalog.abs(-1), pg_catalog.count(*), pg_catalog.lower('A'), pg_catalog.substring('hello', 2, 3)",
    "SELECT extract(isodow FROM date '2024-02-29'), date_part('doy', timestamp '2024-12-31 10:00'), extract(epoch FROM time '01:00')",
]
_ROWS = [
    "SELECT * FROM regexp_matches('a1b22c333', '([a-z])([0-9]+)', 'g') AS m ORDER BY 1",
    "SELECT regexp_matches('a1b22', '([a-z])([0-9]+)')",
    "SELECT regexp_matches('abc', 'x') IS NULL",
    "SELECT * FROM regexp_split_to_table('one,two,,three', ',') WITH ORDINALITY AS p (word, n) ORDER BY n",
    "SELECT s, w FROM (VALUES ('a b'), ('c')) v (s), regexp_split_to_table(s, '\\s') AS w ORDER BY s, w",
    "SELECT * FROM LATERAL ROWS FROM (generate_series(1, 2), generate_series(3, 6)) WITH ORDINALITY ORDER BY 3",
    "SELECT g.* FROM ROWS FROM (pg_catalog.generate_series(1, 2), jsonb_each_text('{\"a\": 1}')) AS g (n, k, v) ORDER BY n",
    "SELECT * FROM unnest(ARRAY[1, 2], ARRAY['x', 'y', 'z']) AS u (a, b) ORDER BY b",
    'SELECT (jsonb_each_text(\'{"a": 1, "b": 2}\')).* ORDER BY 1',
    "SELECT (jsonb_each_text('{\"a\": 1}')).*, generate_series(1, 2) AS n ORDER BY n",
    "SELECT (jsonb_each_text('{\"a\": 1}')).key, jsonb_each_text('{\"a\": 1}')::text, generate_series(1, 2) AS n ORDER BY n",
    "SELECT generate_series(1, 2) AS a, generate_series(1, 2) AS b, generate_series(1, 3) AS c ORDER BY c",
    "SELECT generate_series(1, 3) % 2 AS g, count(*) FROM generate_series(1, 2) GROUP BY g ORDER BY g",
    "SELECT * FROM pg_catalog.generate_series(1, 2) AS g ORDER BY g",
    "SELECT (ROW(1, 'x'::text)).*",
    "SELECT x + 1 FROM generate_series(1, 2) AS x WHERE x IN (SELECT generate_series(2, 5))",
]


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    connection = mzsql.connect(tmp_path_factory.mktemp("functions") / "env")
    yield connection
    connection.close()


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def test_patterns_match_replace_and_split_as_in_postgresql(
    con: mzsql.Connection, postgres: psycopg.Connection[Any]
) -> None:
    values = ", ".join(f"({i}, {_literal(text)})" for i, text in enumerate(_TEXTS))
    made = [(e, p) for e in _OVER_PATTERNS for p in _PATTERNS]
    made += [("regexp_split_to_array(x, {0})::text", p) for p in _SPLIT_PATTERNS]
    items = ", ".join(expr.format(_literal(pattern)) for expr, pattern in made)
    query = f"SELECT {items} FROM (VALUES {values}) AS v (i, x) ORDER BY i"
    answers = zip(_TEXTS, expected(postgres, query), rows_of(con, query), strict=True)
    for text, theirs, ours in answers:
        different = [
            (text, expr, pattern, a, b)
            for (expr, pattern), a, b in zip(made, theirs, ours, strict=True)
            if a != b
        ]
        assert not different


def test_a_pattern_may_be_a_column(
    con: mzsql.Connection, postgres: psycopg.Connection[Any]
) -> None:
    query = (
        "SELECT x, p, x ~ p, x !~* p, regexp_replace(x, p, r), regexp_split_to_array(x, p)::text"
        " FROM (VALUES ('abc', 'b+', '#'), ('aXb', '[A-Z]', '-'), (NULL, 'a', 'b'), ('x', NULL, 'y')) AS v (x, p, r)"
        " ORDER BY p, x"
    )
    check_same(con, postgres, query)
    with pytest.raises(mzsql.Error, match="invalid regular expression: a\\["):
        con.execute("SELECT 'x' ~ p FROM (VALUES ('a['), ('b')) AS v (p)").fetchall()


@pytest.mark.parametrize("query", _SAME)
def test_what_postgresql_answers(
    con: mzsql.Connection, postgres: psycopg.Connection[Any], query: str
) -> None:
    check_same(con, postgres, query)


@pytest.mark.parametrize("query", _ROWS)
def test_rows_that_postgresql_yields(
    con: mzsql.Connection, postgres: psycopg.Connection[Any], query: str
) -> None:
    check_same(con, postgres, query)


def test_functions_that_postgresql_lacks(con: mzsql.Connection) -> None:
    cases: dict[str, list[tuple[Any, ...]]] = {
        "SELECT * FROM regexp_extract('(?P<y>[0-9]+)-([0-9]+)', '2024-02')": [("2024", "02")],
        "SELECT y, column2 FROM regexp_extract('(?P<y>[0-9]+)-([0-9]+)', '2024-02')": [("2024", "02")],
        "SELECT * FROM regexp_extract('(x)(y)?', 'x')": [("x", None)],
        "SELECT * FROM regexp_extract('(z)', 'x')": [],
        "SELECT * FROM csv_extract(2, E'a,\"b,\"\"c\"\nd,e\nonly\n') ORDER BY 1": [("a", 'b,"c'), ("d", "e")],
        "SELECT date_bin_hopping::text FROM date_bin_hopping('10 min', '25 min', timestamp '2024-01-01 01:05') ORDER BY 1": [
            ("2024-01-01 00:45:00",), ("2024-01-01 00:55:00",), ("2024-01-01 01:05:00",),
        ],
        "SELECT datediff('day', date '2024-02-28', date '2024-03-01'), datediff('month', date '2024-01-31', date '2024-02-01')": [(2, 1)],
        "SELECT datediff('hour', timestamp '2024-01-01 10:59', timestamp '2024-01-01 12:00')": [(1,)],
        "SELECT datediff('week', date '2024-01-01', date '2024-01-14')": [(1,)],
        "SELECT datediff(u, timestamp '1999-12-31 23:59', timestamp '2001-01-01') FROM (VALUES ('year'), ('century')) v (u) ORDER BY 1": [
            (1,), (2,),
        ],
        # What SeaHash and Kafka publish as the hashes of these texts.
        "SELECT seahash('to be or not to be'), seahash(NULL)": [(1988685042348123509, None)],
        "SELECT kafka_murmur2('abc'), kafka_murmur2('21'), kafka_murmur2('a-little-bit-long-string'::bytea)": [
            (479470107, -973932308 & 0x7FFFFFFF, -985981536 & 0x7FFFFFFF),
        ],
        "SELECT try_parse_monotonic_iso8601_timestamp(t)::text FROM (VALUES ('2024-02-29T12:34:56.789Z'), ('2023-02-29T12:34:56.789Z'),"
        " ('2024-02-29 12:34:56.789Z'), (E'2024-02-29T12:34:56.789Z\n'), (NULL)) v (t) ORDER BY 1": [
            ("2024-02-29 12:34:56.789",), (None,), (None,), (None,), (None,),
        ],
        "SELECT mz_uptime() >= '0'::interval, pg_postmaster_start_time() <= now()": [(True, True)],
        "SELECT has_cluster_privilege('quickstart', 'USAGE'), has_system_privilege('CREATEDB')": [(True, True)],
        "SELECT mz_catalog.list_length(LIST[1, 2]), materialize.pg_catalog.abs(-2)": [(2, 2)],
    }  # fmt: skip
    for query, wanted in cases.items():
        assert rows_of(con, query) == wanted, query


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("SELECT mz_catalog.abs(1)", 'function "mz_catalog.abs" does not exist'),
        ("SELECT public.abs(1)", 'function "public.abs" does not exist'),
        ("SELECT pg_catalog.nowhere(1)", 'function "pg_catalog.nowhere" does not exist'),
        ("SELECT nowhere.abs(1)", "unknown schema 'nowhere'"),
        ("SELECT nowhere.pg_catalog.abs(1)", "unknown database 'nowhere'"),
        ("SELECT * FROM nowhere.generate_series(1, 2)", "unknown schema 'nowhere'"),
        ("SELECT information_schema._pg_expandarray()", "function information_schema._pg_expandarray() does not exist"),
        ("SELECT lower(DISTINCT 'a')", "DISTINCT specified, but lower is not an aggregate function"),
        ("SELECT now(DISTINCT)", "DISTINCT specified, but now is not an aggregate function"),
        ("SELECT CASE WHEN true THEN generate_series(1, 2) END", "table functions are not allowed in CASE"),
        ("SELECT coalesce(1, generate_series(1, 2))", "table functions are not allowed in COALESCE"),
        ("SELECT (generate_series(1, 2)).*", "type integer is not composite"),
        ("SELECT (1).x", "column notation .x applied to type integer, which is not a composite type"),
        ("SELECT * FROM generate_series(NULL, NULL)", "function generate_series(unknown, unknown) is not unique"),
        ("SELECT * FROM ROWS FROM (generate_series(1, 2) AS g)", "Expected right parenthesis"),
        ("SELECT trim('c' 'ccc')", "Expected"),
        ("SELECT position('a')", "Expected IN, found right parenthesis"),
        ("SELECT now() AT TIME ZONE z FROM (VALUES ('nowhere'), ('UTC')) AS v (z)", "invalid time zone 'nowhere'"),
        ("SELECT '\\xg1'::bytea", 'invalid input syntax for type bytea: invalid hexadecimal digit: "g": "\\xg1"'),
        ("SELECT 'a\\'::bytea", "invalid input syntax for type bytea: ends with escape character"),
        ("SELECT abs((1, 2))", "function abs(record(f1: integer,f2: integer)) does not exist"),
        ("SELECT lpad('x', -1)", "length must be nonnegative"),
        ("SELECT concat_ws('a')", "function concat_ws(unknown) does not exist"),
        ("SELECT 'x' LIKE 'x' ESCAPE '!!'", "invalid escape string"),
        ("SELECT 'x' LIKE 'x!' ESCAPE '!'", "unterminated escape sequence in LIKE"),
        ("SELECT seahash(name) FROM mz_types", "seahash of anything but constants is not supported"),
        ("SELECT 'x' ~ '('", "invalid regular expression"),
        ("SELECT regexp_match('x', 'x', 'g')", "invalid regular expression flag: g"),
        ("SELECT regexp_extract('a', 'b')", "regexp_extract must specify at least one capture group"),
        ("SELECT parse_ident('a b')", 'string is not a valid identifier: "a b"'),
        ("SELECT parse_ident('a.', false)", 'string is not a valid identifier: "a."'),
        ("SELECT length('\\xff'::bytea, 'utf8')", "invalid byte sequence '\\xff' for encoding 'utf8'"),
        ("SELECT length('x'::bytea, 'klingon')", "invalid encoding name 'klingon'"),
        ("SELECT extract(hour FROM date '2024-01-01')", "unit 'hour' not supported for type date"),
        ("SELECT extract(day FROM time '10:00')", "unit 'day' not supported for type time"),
        ("SELECT extract(timezone FROM timestamp '2024-01-01')", "'timezone' timestamp units not yet supported"),
        ("SELECT extract(parsec FROM date '2024-01-01')", "unit 'parsec' not recognized"),
        ("SELECT datediff('day', time '10:00', time '11:00')", "unit 'day' not supported for type time"),
        ("SELECT * FROM generate_series(timestamp '2024-01-01', timestamp '2024-02-01', '1 month -30 days')",
         "step size cannot equal zero"),
    ],
)  # fmt: skip
def test_what_is_refused(con: mzsql.Connection, statement: str, message: str) -> None:
    with pytest.raises(mzsql.Error) as caught:
        con.execute(statement).fetchall()
    assert message in str(caught.value)
