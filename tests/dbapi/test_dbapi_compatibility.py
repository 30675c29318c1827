"""Statements as users of PostgreSQL and Materialize write them: what is answered, under which names, or refused in which words."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mzsql


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    """An environment with two small tables."""
    connection = mzsql.connect(tmp_path_factory.mktemp("compatibility") / "env")
    connection.execute("CREATE TABLE pets (owner int, name text, age int)")
    connection.execute(
        "INSERT INTO pets VALUES (1, 'rex', 3), (1, 'rex', 3), (1, 'ada', 1), (2, 'tom', NULL)"
    )
    yield connection
    connection.close()


@pytest.mark.parametrize(
    ("query", "names", "row"),
    [
        # What follows a typed literal is about its value.
        (
            "SELECT DATE '2020-01-05'::text, TIMESTAMP '2020-01-05 10:00'::time::text, numeric(5,2) '1.555'::text",
            ["text", "text", "text"],
            ("2020-01-05", "10:00:00", "1.56"),
        ),
        ("SELECT jsonb '{\"a\": [7]}' -> 'a' ->> 0", ["?column?"], ("7",)),
        # A cast names its column after the type.
        ("SELECT '{1}'::int[], '{{1}}'::text[][]", ["_int4", "_text"], ([1], [["1"]])),
        ("SELECT '\\x01'::bytea, (1, 2)", ["bytea", "row"], (b"\x01", (1, 2))),
        # Behind AS any word is a name.
        ("SELECT 1 AS select, 2 AS from", ["select", "from"], (1, 2)),
        # All elements of an array count; one is reached by as many subscripts as there are dimensions.
        ("SELECT cardinality(ARRAY[[1, 2], [3, 4]])", ["cardinality"], (4,)),
        ("SELECT (ARRAY[[1, 2], [3, 4]])[2]", ["array"], (None,)),
        ("SELECT (ARRAY[[1, 2], [3, 4]])[2][1]", ["array"], (3,)),
        ("SELECT pg_typeof(ARRAY[1.5])", ["pg_typeof"], ("numeric[]",)),
        (
            "SELECT LIST[1], MAP['a' => 1] -> 'a', (LIST[2])[1]",
            ["list", "?column?", "list"],
            ([1], 1, 2),
        ),
        # Blanks at the end of a char do not count beside a varchar, those of a varchar do beside a text.
        (
            "SELECT 'a'::char(3) = 'a '::varchar, 'a'::char(3) = 'a '::text, 'b'::varchar > 'a'::char(2)",
            ["?column?"] * 3,
            (True, False, True),
        ),
        # Where one of several table functions has ended its row is NULL.
        (
            "SELECT string_agg(r::text, ';' ORDER BY n), count(r) FROM (SELECT unnest(MAP['a' => 1]) AS r, unnest(LIST[1, 2]) AS n)",
            ["string_agg", "count"],
            ("(a,1)", 1),
        ),
        # Time zones by what they are called in short, in literals and as constants.
        (
            "SELECT (TIMESTAMPTZ '2020-01-01 12:00 PST')::text, (TIMESTAMP '2020-01-01 12:00' AT TIME ZONE 'acst')::text",
            ["text", "timezone"],
            ("2020-01-01 20:00:00+00", "2020-01-01 02:30:00+00"),
        ),
        # Aggregates over distinct rows stand beside others.
        (
            "SELECT array_agg(DISTINCT age ORDER BY age), string_agg(DISTINCT name, ',' ORDER BY name DESC),"
            " string_agg(name, ',' ORDER BY name), count(*), sum(DISTINCT age) FROM pets",
            ["array_agg", "string_agg", "string_agg", "count", "sum"],
            ([1, 3, None], "tom,rex,ada", "ada,rex,rex,tom", 4, 4),
        ),
    ],
)
def test_a_query_is_answered(
    con: mzsql.Connection, query: str, names: list[str], row: tuple[object, ...]
) -> None:
    """Its columns have these names, its one row these values."""
    cursor = con.execute(query)
    assert [column[0] for column in cursor.description or ()] == names
    assert cursor.fetchall() == [row]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT DATE '2020-01-05'::int", "from date to integer"),
        ("SELECT 1 ORDER BY 1 UNION SELECT 2", "Expected end of statement, found UNION"),
        ("SELECT 1 LIMIT 1 EXCEPT SELECT 2", "Expected end of statement, found EXCEPT"),
        (
            "SELECT * FROM pets CROSS JOIN pets AS p ON true",
            "Expected end of statement, found ON",
        ),
        (
            "SELECT * FROM pets NATURAL JOIN pets AS p USING (age)",
            "Expected end of statement, found USING",
        ),
        ("SELECT ARRAY(SELECT owner, age FROM pets)", "return 1 column, got 2 columns"),
        ("SELECT ARRAY(SELECT * FROM pets)", "return 1 column, got 3 columns"),
        ("SELECT TIMESTAMP '294276-12-31 10:00'", "date/time field value out of range"),
        ("SELECT TIMESTAMP '2020-01-01' AT TIME ZONE 'XYZ'", "invalid time zone 'XYZ'"),
        (r"SELECT E'\101'", "octal escapes are not supported"),
        (r"SELECT E'\\\x41'", "hexadecimal escapes are not supported"),
    ],
)
def test_a_query_is_refused(con: mzsql.Connection, query: str, message: str) -> None:
    """The error says why."""
    with pytest.raises(mzsql.Error, match=message):
        con.execute(query)


def test_show_indexes_has_a_column_named_by_a_keyword(con: mzsql.Connection) -> None:
    """ON is a column where it can be nothing else."""
    con.execute("CREATE INDEX pets_by_owner ON pets (owner)")
    assert con.execute("SHOW INDEXES WHERE on = 'pets'").fetchall()[0][:2] == (
        "pets_by_owner",
        "pets",
    )
    con.execute("SET NAMES 'utf8'")
    assert con.execute("SELECT current_setting('client_encoding')").fetchall() == [("UTF8",)]


def test_distinct_aggregates_of_groups(con: mzsql.Connection) -> None:
    """Each group has its own distinct rows."""
    rows = con.execute(
        "SELECT owner, array_agg(DISTINCT age ORDER BY age DESC), count(*), max(age) FROM pets GROUP BY owner ORDER BY owner"
    ).fetchall()
    assert rows == [(1, [3, 1], 3, 3), (2, [None], 1, None)]
