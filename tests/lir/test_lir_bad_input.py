"""Texts that are broken, deep, long or wide, planned to the end: a physical plan comes out, or an error that a person can read."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

import mzsql

SCHEMA = (
    "CREATE TABLE t (a int, b int, s text)",
    "CREATE TABLE u (c int NOT NULL, d numeric(10, 2))",
    "CREATE INDEX t_a_idx ON t (a)",
    "CREATE VIEW v AS SELECT a, count(*) AS n FROM t GROUP BY a",
)
TEXTS = (
    "SELECT a + 1, -b, s || 'x' FROM t WHERE a IN (1, 2, 3) AND s LIKE 'a%' ORDER BY 1 DESC LIMIT 3",
    "SELECT t.a, sum(u.d) FILTER (WHERE u.c > 1) FROM t LEFT JOIN u ON t.a = u.c GROUP BY t.a HAVING count(*) > 1",
    "WITH x AS (SELECT * FROM v) SELECT x.a, (SELECT max(c) FROM u WHERE u.c < x.n) FROM x WHERE EXISTS (SELECT FROM t WHERE t.a = x.a)",
    "SELECT DISTINCT ON (a) a, b FROM t ORDER BY a, b NULLS FIRST",
    "SELECT a, row_number() OVER (PARTITION BY b ORDER BY s) FROM t UNION ALL SELECT c, 1 FROM u EXCEPT SELECT 1, 2",
    "SELECT CASE WHEN a = 1 THEN 'one' ELSE s END, coalesce(b, 0), cast('1 day' AS interval) FROM t, generate_series(1, 3) AS g(x)",
    "WITH MUTUALLY RECURSIVE r (n int) AS (SELECT 1 UNION SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    "SELECT ARRAY[1, a], LIST[b], '{\"k\": [1]}'::jsonb -> 'k' FROM t JOIN LATERAL (SELECT d FROM u WHERE c = a) q ON true",
)
WORDS = sorted(
    {word for text in TEXTS for word in text.replace("(", " ( ").replace(")", " ) ").split()}
)
#: What a table may be as wide as.
WIDE = 1_600


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path_factory.mktemp("bad") / "env")) as con:
        for statement in SCHEMA:
            con.execute(statement)
        yield con


@pytest.fixture(autouse=True)
def _limited(con: mzsql.Connection) -> None:
    """What takes longer than anybody waits ends by itself: that is an answer too."""
    con.execute("SET statement_timeout = '2 min'")


def planned(con: mzsql.Connection, query: str) -> str:
    """The text of the physical plan."""
    ((text,),) = con.execute(f"EXPLAIN PHYSICAL PLAN AS TEXT FOR {query}").fetchall()
    return str(text)


def refusal(con: mzsql.Connection, query: str) -> mzsql.Error | None:
    """The error that planning ends in; None where there is a plan. Anything but an error of PEP 249 passes through."""
    try:
        planned(con, query)
    except mzsql.Error as error:
        return error
    return None


def survive(con: mzsql.Connection, query: str) -> None:
    error = refusal(con, query)
    assert error is None or str(error), query
    assert not isinstance(error, mzsql.InternalError), query


# --- deep ----------------------------------------------------------------------------------------


def _derived(depth: int) -> str:
    query = "SELECT a, b FROM t"
    for i in range(depth):
        query = f"SELECT a, b + {i} AS b FROM ({query}) q WHERE a <> {i}"
    return query


def _scalar(depth: int) -> str:
    return "SELECT (" * depth + "SELECT max(a) FROM t" + ")" * depth


def _members(depth: int) -> str:
    query = "SELECT a FROM t"
    for i in range(depth):
        query = f"SELECT b FROM t WHERE a IN ({query}) AND b <> {i}"
    return query


def _correlated(depth: int) -> str:
    query = "SELECT FROM u WHERE c = t0.a"
    for i in range(1, depth):
        query = f"SELECT FROM t t{i} WHERE t{i}.a = t0.b AND EXISTS ({query})"
    return f"SELECT a FROM t t0 WHERE EXISTS ({query})"


def _grouped(depth: int) -> str:
    query = "SELECT a, b FROM t"
    for _ in range(depth):
        query = f"SELECT a, count(b)::int AS b FROM ({query}) q GROUP BY a"
    return query


def _left_joins(depth: int) -> str:
    joins = " ".join(f"LEFT JOIN t t{i} ON t{i}.a = t0.b" for i in range(1, depth + 1))
    return f"SELECT t0.a FROM t t0 {joins}"


DEEP: dict[str, Callable[[int], str]] = {
    "parentheses": lambda n: f"SELECT {'(' * n}a{')' * n} FROM t",
    "case": lambda n: f"SELECT {'CASE WHEN a = 1 THEN ' * n}b{' END' * n} FROM t",
    "calls": lambda n: f"SELECT {'abs(' * n}a{')' * n} FROM t",
    "casts": lambda n: f"SELECT {'CAST(' * n}a{' AS text)' * n} FROM t",
    "not": lambda n: f"SELECT a FROM t WHERE {'NOT (' * n}a = 1{')' * n}",
    "and, or": lambda n: (
        f"SELECT a FROM t WHERE {'a = 1 OR (b = 2 AND (' * (n // 2)}a = 3{'))' * (n // 2)}"
    ),
    "arrays": lambda n: f"SELECT {'ARRAY[' * n}1{']' * n}",
    "unions": lambda n: f"{'(SELECT a FROM t UNION ALL ' * n}SELECT b FROM t{')' * n}",
    "excepts": lambda n: f"{'(SELECT a FROM t EXCEPT ' * n}SELECT b FROM t{')' * n}",
    "derived tables": _derived,
    "scalar subqueries": _scalar,
    "memberships": _members,
    "correlated subqueries": _correlated,
    "groups": _grouped,
    "left joins": _left_joins,
    "joins": lambda n: (
        "SELECT t0.a FROM t t0"
        + "".join(f" JOIN t t{i} ON t{i}.a = t{i - 1}.b" for i in range(1, n + 1))
    ),
    "join trees": lambda n: (
        f"SELECT * FROM {'(' * n}t{''.join(f' CROSS JOIN u u{i})' for i in range(n))}"
    ),
    "with": lambda n: (
        "WITH c0 AS (SELECT a, b FROM t)"
        + "".join(
            f", c{i} AS (SELECT x.a, y.b FROM c{i - 1} x, c{i - 1} y WHERE x.a = y.b)"
            for i in range(1, n + 1)
        )
        + f" SELECT * FROM c{n}"
    ),
}
DAILY = ("parentheses", "case", "calls", "and, or", "scalar subqueries", "derived tables")
#: What has an error of its own.
REFUSED = {"arrays": "number of array dimensions (7) exceeds the maximum allowed (6)"}
#: What is deep in the text alone; the others are as deep in their plans.
SHALLOW = ("parentheses", "case", "calls", "casts", "not", "arrays")


@pytest.mark.parametrize("kind", DAILY)
def test_128_levels_are_planned(con: mzsql.Connection, kind: str) -> None:
    assert "Target cluster" in planned(con, DEEP[kind](128))


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in DEEP if kind not in DAILY])
def test_128_levels_of_all_kinds_are_planned(con: mzsql.Connection, kind: str) -> None:
    if kind in REFUSED:
        assert str(refusal(con, DEEP[kind](128))) == REFUSED[kind]
        return
    assert "Target cluster" in planned(con, DEEP[kind](128))


@pytest.mark.parametrize("kind", SHALLOW)
def test_far_more_levels_are_refused(con: mzsql.Connection, kind: str) -> None:
    refuse(con, DEEP[kind](2_000))


@pytest.mark.long
@pytest.mark.parametrize("kind", SHALLOW)
def test_a_hundred_thousand_levels_are_refused(con: mzsql.Connection, kind: str) -> None:
    refuse(con, DEEP[kind](100_000))


def refuse(con: mzsql.Connection, query: str) -> None:
    error = refusal(con, query)
    assert error is not None
    assert "nested too deeply" in str(error)


@pytest.mark.long
@pytest.mark.parametrize("kind", [kind for kind in DEEP if kind not in SHALLOW])
def test_far_more_levels_end(con: mzsql.Connection, kind: str) -> None:
    con.execute("SET statement_timeout = '20 s'")
    survive(con, DEEP[kind](2_000))


# --- what doubles with each level ------------------------------------------------------------------


def _columns(step: str, start: str, depth: int) -> str:
    query = f"SELECT {start} AS x, b FROM t"
    for _ in range(depth):
        query = f"SELECT {step.replace('x', 'q.x')} AS x, q.b FROM ({query}) q"
    return query


DOUBLING: dict[str, Callable[[int], str]] = {
    "sums": lambda n: _columns("x + x", "a", n),
    "cases": lambda n: _columns("CASE WHEN x > 1 THEN x + 1 ELSE x - 1 END", "a", n),
    "filters": lambda n: f"SELECT * FROM ({_columns('x + x', 'a', n)}) q WHERE x > 1",
    "keys": lambda n: f"SELECT x, count(*) FROM ({_columns('x + x', 'a', n)}) q GROUP BY x",
    "join keys": lambda n: f"SELECT count(*) FROM u JOIN ({_columns('x + x', 'a', n)}) q ON c = x",
    "laterals": lambda n: (
        "SELECT count(*) FROM t t0"
        + "".join(
            f", LATERAL (SELECT c + t{i - 1}.a AS a FROM u WHERE c = t{i - 1}.a) t{i}"
            for i in range(1, n)
        )
    ),
    "left joins": _left_joins,
    "correlated subqueries": _correlated,
    "intersections": lambda n: " INTERSECT ".join(f"SELECT a + {i} FROM t" for i in range(n)),
    "bindings": lambda n: (
        "WITH c0 AS (SELECT a FROM t)"
        + "".join(
            f", c{i} AS (SELECT a FROM c{i - 1} UNION ALL SELECT a + 1 FROM c{i - 1})"
            for i in range(1, n)
        )
        + f" SELECT * FROM c{n - 1}"
    ),
    "texts": lambda n: _columns("x || x", "'ab'::text", n),
    "arrays": lambda n: _columns("x || x", "ARRAY[1]", n),
}
#: Slow to be left to the long run.
SLOW = ("left joins", "correlated subqueries", "intersections", "laterals", "filters", "arrays")


@pytest.mark.parametrize("kind", [kind for kind in DOUBLING if kind not in SLOW])
def test_what_doubles_is_planned_as_it_is_written(con: mzsql.Connection, kind: str) -> None:
    assert "Target cluster" in planned(con, DOUBLING[kind](40))


def test_a_filter_of_what_is_too_large_to_repeat_is_planned_and_answered(
    con: mzsql.Connection,
) -> None:
    query = DOUBLING["filters"](12)
    assert "Target cluster" in planned(con, query)
    assert (
        con.execute(f"SELECT count(*) FROM ({query}) q").fetchall()
        == con.execute("SELECT count(*) FROM t WHERE a * 4096 > 1").fetchall()
    )


@pytest.mark.long
@pytest.mark.parametrize("kind", SLOW)
def test_what_doubles_more_is_planned_as_it_is_written(con: mzsql.Connection, kind: str) -> None:
    assert "Target cluster" in planned(con, DOUBLING[kind](40))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT '{{{{{{{1}}}}}}}'::int[]", "number of array dimensions (7) exceeds the maximum"),
        (f"SELECT '{'{' * 100_000}'::int[]", "number of array dimensions (100000) exceeds the"),
        (f"SELECT {'LIST[' * 20}1{']' * 20}", "type is nested too deeply"),
        (f"SELECT {'ROW(' * 20}1{')' * 20}", "type is nested too deeply"),
        (f"SELECT NULL::int{' list' * 1_000}", "nested too deeply"),
        (f"CREATE TABLE deep (a int{' list' * 30})", "type is nested too deeply"),
        (f"SELECT '{'[' * 10_000}{']' * 10_000}'::jsonb", "recursion limit exceeded"),
    ],
)
def test_values_that_nest_too_deeply_are_refused(
    con: mzsql.Connection, query: str, message: str
) -> None:
    with pytest.raises(mzsql.Error) as raised:
        con.execute(query)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT '1e1000000'::numeric", "exceeds maximum precision 39"),
        ("SELECT 1e999999999999", "exceeds maximum precision 39"),
        ("SELECT '1e1000000'::double precision", "out of range for type double precision"),
        ("SELECT power(10::numeric, 1e30::numeric)", "value out of range: overflow"),
        ("SELECT exp(1e38::numeric)", "value out of range: overflow"),
        ("SELECT exp(-1e38::numeric)", "value out of range: underflow"),
        ("SELECT repeat('x', 1000000000)", "requested length too large"),
        ("SELECT length(repeat(repeat('x', 10000), 100000))", "requested length too large"),
        ("SELECT lpad('x', 2147483647, 'ab')", "requested length too large"),
        ("SELECT rpad('x', 1000000000)", "requested length too large"),
        ("SELECT length(repeat('ü', 60000000))", "requested length too large"),
        (
            "SELECT length(replace(repeat('x', 100000), 'x', repeat('y', 100000)))",
            "requested length too large",
        ),
        (
            "SELECT length(regexp_replace(repeat('x', 100000), 'x', repeat('y', 100000), 'g'))",
            "requested length too large",
        ),
        (
            "SELECT length(regexp_replace(repeat('x', 100000), 'x', repeat('y', 100000), 1, 0))",
            "requested length too large",
        ),
        (
            "SELECT length(array_to_string(array_fill(1, ARRAY[100000]), repeat('y', 100000)))",
            "requested length too large",
        ),
        (
            "SELECT length(array_to_string(array_fill(NULL::int, ARRAY[100000]), ',', repeat('y', 100000)))",
            "requested length too large",
        ),
        ("SELECT * FROM generate_series(1, 1000000000000)", "more than 10000000 rows"),
        ("SELECT 'a'::varchar(1000000000)", "must be between 1 and 10485760"),
        ("SELECT ''::char(0)", "length for type character must be between 1 and 10485760"),
    ],
)
def test_values_beyond_all_bounds_are_refused(
    con: mzsql.Connection, query: str, message: str
) -> None:
    with pytest.raises(mzsql.Error) as raised:
        con.execute(query).fetchall()
    assert message in str(raised.value)


def test_what_is_written_often_is_there_where_it_fits(con: mzsql.Connection) -> None:
    rule = "-" * 40
    found = con.execute(
        f"SELECT regexp_replace('aXbX', 'X', '{rule}', 'g'), regexp_replace('aXbX', '(X)', '$1{rule}', 1, 0),"
        f" array_to_string(ARRAY[1, NULL, 3], '{rule}'), array_to_string(ARRAY[1, NULL], ',', '{rule}')"
    ).fetchone()
    assert found == (
        f"a{rule}b{rule}",
        f"aX{rule}bX{rule}",
        f"1{rule}3",
        f"1,{rule}",
    )


def test_a_long_text_is_left_to_the_engine(con: mzsql.Connection) -> None:
    small = con.execute(f"SELECT length(x) FROM ({_text(18)}) q").fetchall()
    assert small == [(2**18,)]
    assert con.execute(f"SELECT length(x) FROM ({_text(23)}) q").fetchall() == [(2**23,)]


def _text(depth: int) -> str:
    query = "SELECT 'a'::text AS x"
    for _ in range(depth):
        query = f"SELECT q.x || q.x AS x FROM ({query}) q"
    return query


# --- long and wide -------------------------------------------------------------------------------


def test_long_lists_are_planned(con: mzsql.Connection) -> None:
    members = ", ".join(map(str, range(1_000)))
    assert "999" in planned(con, f"SELECT b FROM t WHERE b IN ({members})")
    assert "t_a_idx" in planned(con, f"SELECT b FROM t WHERE a IN ({members})")


@pytest.mark.long
@pytest.mark.parametrize("column", ["a", "b"])
def test_longer_lists_are_planned(con: mzsql.Connection, column: str) -> None:
    members = ", ".join(map(str, range(10_000)))
    assert "9999" in planned(con, f"SELECT b FROM t WHERE {column} IN ({members})")


def test_a_million_characters_are_planned(con: mzsql.Connection) -> None:
    text = "x" * 1_000_000
    assert text in planned(con, f"SELECT a FROM t WHERE s = '{text}'")
    survive(con, f"SELECT {text} FROM t")
    survive(con, f'SELECT "{text}" FROM t')
    survive(con, f"SELECT '{text} FROM t")
    survive(con, f"SELECT {'9' * 1_000_000}")


@pytest.mark.long
@pytest.mark.parametrize("word", ["AND", "OR"])
def test_a_hundred_thousand_terms_end(con: mzsql.Connection, word: str) -> None:
    con.execute("SET statement_timeout = '20 s'")
    survive(con, f"SELECT a FROM t WHERE {f' {word} '.join(f'b <> {i}' for i in range(100_000))}")


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_thousands_of_terms_are_planned(con: mzsql.Connection, word: str) -> None:
    terms = f" {word} ".join(f"b <> {i}" for i in range(1_000))
    assert "999" in planned(con, f"SELECT a FROM t WHERE {terms}")


@pytest.mark.parametrize("of", ["now()", "'2020-01-01'::timestamp"])
def test_a_long_format_is_refused(con: mzsql.Connection, of: str) -> None:
    with pytest.raises(mzsql.NotSupportedError, match="more than 1000 characters"):
        con.execute(f"SELECT to_char({of}, '{'x' * 1_000_000}')").fetchall()


def test_a_wide_table_is_planned(con: mzsql.Connection) -> None:
    names = [f"c{i}" for i in range(WIDE)]
    con.execute(f"CREATE TABLE wide ({', '.join(f'{name} int' for name in names)})")
    listed = ", ".join(names)
    assert "#1599" in planned(con, f"SELECT {listed}, c0 + c1599 FROM wide")
    assert "Reduce" in planned(con, f"SELECT DISTINCT {listed} FROM wide")
    assert "Reduce" in planned(
        con, f"SELECT {', '.join(f'sum({name})' for name in names)} FROM wide"
    )
    assert "Join" in planned(con, "SELECT * FROM wide x JOIN wide y USING (c0) WHERE y.c7 > 1")


# --- broken --------------------------------------------------------------------------------------


def damaged(rng: random.Random) -> str:
    """One of the texts, cut off, or with words missing, doubled or in place of others."""
    text = rng.choice(TEXTS)
    if rng.random() < 0.2:
        return text[: rng.randrange(len(text))]
    words = text.split(" ")
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(words))
        words[at : at + rng.randint(0, 1)] = rng.choice([[], [words[at]] * 2, [rng.choice(WORDS)]])
        words = words or ["SELECT"]
    return " ".join(words)


def noise(rng: random.Random) -> str:
    """Any bytes, any characters, or words in any order."""
    match rng.randrange(3):
        case 0:
            return rng.randbytes(rng.randint(1, 60)).decode("latin-1")
        case 1:
            signs = "'\"$\\/*-();,.:[]{}<>=~|&%#@!?^ \n\t\0é𝄞"
            return "SELECT " + "".join(rng.choice(signs + "aE1") for _ in range(rng.randint(1, 40)))
        case _:
            return "SELECT " + " ".join(rng.choice(WORDS) for _ in range(rng.randint(1, 14)))


def test_the_texts_are_planned_as_they_are(con: mzsql.Connection) -> None:
    for text in TEXTS:
        assert "Target cluster" in planned(con, text)


def test_broken_texts_every_day(con: mzsql.Connection) -> None:
    rng = random.Random(1)
    for _ in range(150):
        survive(con, damaged(rng))
        survive(con, noise(rng))


@pytest.mark.long
@pytest.mark.parametrize(
    "seed", [2, 3, 4, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(5, 20))]
)
def test_broken_texts_at_length(con: mzsql.Connection, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(1_500):
        survive(con, damaged(rng))
        survive(con, noise(rng))
