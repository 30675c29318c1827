"""Ranges through a connection: PostgreSQL's answers, errors and order, as values of Python and in files."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest
from answers_kit import check_same

import mzsql

#: Ranges of each type that touch, overlap, hold each other, have no bounds and are empty; NULL, and one twice.
_VALUES = {
    "int4range": [
        "[1,5)",
        "[1,4]",
        "(1,5]",
        "[5,9)",
        "[3,7)",
        "(,3)",
        "[4,)",
        "(,)",
        "empty",
        "[2,2]",
        "(2,3)",
        "[-7,-1)",
    ],
    "int8range": ["[1,5000000000)", "[5000000000,5000000001]", "(,1)", "empty", "[1,1]"],
    "numrange": [
        "[1.1,2.2)",
        "(1.1,2.2]",
        "[1.1,2.2]",
        "(1.1,2.2)",
        "[2.2,2.2]",
        "(2.2,2.2]",
        "[2.2,3)",
        "(2.2,3)",
        "(,2.2)",
        "(,2.2]",
        "[2.2,)",
        "(2.2,)",
        "(,)",
        "empty",
        "[-1,1.5]",
        "[1.5,1.5]",
    ],
    "daterange": [
        "[2020-01-01,2020-02-01)",
        "[2020-01-31,2020-01-31]",
        "(2020-01-31,2020-02-29]",
        "(,2020-01-01)",
        "empty",
        "[2020-02-01,)",
    ],
    "tsrange": [
        "[2020-01-01 10:00,2020-01-01 11:00)",
        "[2020-01-01 11:00,2020-01-01 12:00:00.5]",
        "(2020-01-01 11:00,)",
        "(,)",
        "empty",
        '["2020-01-01 10:30:00",2020-01-01T10:30:00]',
    ],
    "tstzrange": [
        "[2020-01-01 10:00+00,2020-01-01 11:00+00)",
        "[2020-01-01 12:00+02,2020-01-01 13:00+02]",
        "(,2020-01-01 10:00+00)",
        "empty",
    ],
}
_OPERATORS = (
    *("=", "<>", "<", "<=", ">", ">="),
    *("@>", "<@", "&&", "<<", ">>", "&<", "&>", "-|-", "*"),
)
#: One type of whole numbers and one of others daily, all in the long run.
_NAMES = [
    name if name in ("int4range", "numrange") else pytest.param(name, marks=pytest.mark.long)
    for name in _VALUES
]
_PARTS = ("lower", "upper", "isempty", "lower_inc", "upper_inc", "lower_inf", "upper_inf")
#: An element inside or on the edge of some of the ranges.
_ELEMENTS = {
    "int4range": ("1", "4", "5", "NULL"),
    "int8range": ("5000000000", "1::bigint"),
    "numrange": ("2.2", "1.1", "2::numeric", "2.20001"),
    "daterange": ("DATE '2020-01-31'", "DATE '2020-02-01'"),
    "tsrange": ("TIMESTAMP '2020-01-01 11:00'", "TIMESTAMP '2020-01-01 12:00:00.5'"),
    "tstzrange": ("TIMESTAMPTZ '2020-01-01 11:00+00'",),
}


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    connection = mzsql.connect(tmp_path_factory.mktemp("ranges") / "env")
    _fill(connection.cursor())
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def postgres(postgres: psycopg.Connection[Any]) -> psycopg.Connection[Any]:
    _fill(postgres.cursor())
    return postgres


def _fill(cursor: Any) -> None:
    for name, texts in _VALUES.items():
        cursor.execute(f"CREATE TABLE t_{name} (k integer, v {name})")
        rows = ", ".join(f"({i}, '{text}')" for i, text in enumerate(texts))
        cursor.execute(f"INSERT INTO t_{name} VALUES {rows}, (100, NULL), (101, '{texts[0]}')")


@pytest.mark.parametrize("name", _NAMES)
def test_operators_of_two_ranges(
    con: mzsql.Connection, postgres: psycopg.Connection[Any], name: str
) -> None:
    items = [f"(a.v {operator} b.v)::text" for operator in _OPERATORS]
    items.append("(CASE WHEN a.v && b.v OR a.v -|- b.v THEN a.v + b.v END)::text")
    whole = "isempty(a.v) OR isempty(b.v) OR NOT a.v && b.v OR a.v &< b.v OR a.v &> b.v"
    items.append(f"(CASE WHEN {whole} THEN a.v - b.v END)::text")
    query = f"SELECT a.v::text, b.v::text, {', '.join(items)} FROM t_{name} a, t_{name} b ORDER BY a.k, b.k"
    check_same(con, postgres, query)


@pytest.mark.parametrize("name", _NAMES)
def test_parts_and_elements(
    con: mzsql.Connection, postgres: psycopg.Connection[Any], name: str
) -> None:
    items = [f"{part}(v)::text" for part in _PARTS]
    for element in _ELEMENTS[name]:
        items += [f"(v @> {element})::text", f"({element} <@ v)::text"]
    check_same(con, postgres, f"SELECT v::text, {', '.join(items)} FROM t_{name} ORDER BY k")


@pytest.mark.parametrize("name", _NAMES)
def test_order_groups_and_joins(
    con: mzsql.Connection, postgres: psycopg.Connection[Any], name: str
) -> None:
    table = f"t_{name}"
    check_same(con, postgres, f"SELECT v::text FROM {table} ORDER BY v DESC NULLS LAST, k")
    check_same(con, postgres, f"SELECT v::text, count(*) FROM {table} GROUP BY v ORDER BY v")
    check_same(con, postgres, f"SELECT count(*) FROM (SELECT DISTINCT v FROM {table}) AS d")
    check_same(
        con,
        postgres,
        f"SELECT a.k, b.k FROM {table} a JOIN {table} b ON a.v = b.v ORDER BY a.k, b.k",
    )
    check_same(
        con, postgres, f"SELECT k FROM {table} WHERE v IN (SELECT v FROM {table}) ORDER BY k"
    )


_SHARED = [
    "int4range(1, 5)",
    "int4range(1, 5, '(]')",
    "int4range(NULL, 5, '[]')",
    "int4range(1, NULL)",
    "int4range(NULL, NULL, '[]')",
    "int4range(3, 3)",
    "int4range(3, 3, '[]')",
    "int4range(3, 4, '()')",
    "int8range(1, 5000000000)",
    "numrange(1.5, 2)",
    "numrange(1.5, 1.50, '()')",
    "numrange(0.1, 0.2) + numrange(0.2, 0.25, '[]')",
    "daterange('2020-01-01', '2020-01-31', '[]')",
    "tsrange('2020-01-01', NULL)",
    "tstzrange('2020-01-01 00:00+00', '2020-01-01 05:00+00', '(]')",
    "'  [ 1 , 5 ) '::int4range",
    "'EMPTY'::numrange",
    "' empty '::int4range",
    '\'["1","5")\'::int4range',
    "'[1\\2,1\"5\")'::int4range",
    "'[,]'::int4range",
    "'(1,2)'::int4range",
    "'[2147483646,2147483647)'::int4range",
    "'(,2020-01-01]'::daterange",
    "int4range(1, 10) - int4range(5, 20) * int4range(4, 12)",
    "range_merge(int4range(1, 2), int4range(8, 9))",
    "int4range(1, 5) @> '[2,3)'",
    "'[2,3)' <@ int4range(1, 5)",
    "ARRAY[int4range(1, 3), 'empty', NULL]",
    "'{\"[1,3)\",empty,NULL}'::int4range[]",
    "ROW(int4range(1, 3), tsrange(NULL, NULL))",
    "lower('ABC')",
    "int4range(1, 3) = int4range(1, 2, '[]')",
    "int4range(1, 3) IS NOT DISTINCT FROM NULL",
    "coalesce(NULL, int4range(1, 3))",
    "CASE WHEN true THEN '[1,3]' ELSE int4range(1, 2) END",
    "pg_typeof(numrange(1, 2))",
    "('[1,5)'::text::int4range)::text",
    "int4range '[1,5]'",
    "'[1,5]'::varchar::int4range",
]


def test_what_postgresql_answers(con: mzsql.Connection, postgres: psycopg.Connection[Any]) -> None:
    query = f"SELECT {', '.join(f'({e})::text' for e in _SHARED)}"
    (expected,) = postgres.execute(query.encode()).fetchall()
    (found,) = con.execute(query).fetchall()
    assert dict(zip(_SHARED, found, strict=True)) == dict(zip(_SHARED, expected, strict=True))


@pytest.mark.parametrize(
    "expression",
    [
        "int4range(5, 1)",
        "'[5,1)'::int4range",
        "int4range(1, 2, NULL)",
        "int4range(1, 2, '[[')",
        "int4range(1, 2147483647, '[]')",
        "'[1,9223372036854775807]'::int8range",
        "int4range(1, 2) + int4range(5, 6)",
        "int4range(1, 9) - int4range(3, 4)",
    ],
)
def test_errors_as_postgresql_words_them(
    con: mzsql.Connection, postgres: psycopg.Connection[Any], expression: str
) -> None:
    with pytest.raises(psycopg.Error) as theirs:
        postgres.execute(f"SELECT {expression}".encode())
    with pytest.raises(mzsql.Error) as ours:
        con.execute(f"SELECT {expression}").fetchall()
    assert str(ours.value).splitlines()[0] == theirs.value.diag.message_primary
    # Of a column the same is said.
    with pytest.raises(mzsql.Error) as ours:
        con.execute(f"SELECT {expression} FROM t_int4range").fetchall()
    assert str(ours.value).splitlines()[0] == theirs.value.diag.message_primary


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("1,5", "Missing left parenthesis or bracket."),
        ("", "Missing left parenthesis or bracket."),
        ("[1,5", "Unexpected end of input."),
        ("[15)", "Missing comma after lower bound."),
        ("[1,5) x", "Junk after right parenthesis or bracket."),
        ("[1,5,6)", "Too many commas."),
        ("empty x", 'Junk after "empty" key word.'),
        ("[a,5)", 'invalid input syntax for type integer: invalid digit found in string: "a"'),
    ],
)
def test_texts_that_are_no_range(con: mzsql.Connection, text: str, detail: str) -> None:
    message = f'invalid input syntax for type range: {detail}: "{text}"'
    column = f"(SELECT '{text}' || left(v::text, 0) AS t FROM t_numrange WHERE k = 0)"
    for query in (f"SELECT '{text}'::int4range", f"SELECT t::int4range FROM {column} AS x"):
        with pytest.raises(mzsql.Error) as failure:
            con.execute(query).fetchall()
        assert str(failure.value).splitlines()[0] == message


def test_unlike_types_do_not_mix(con: mzsql.Connection) -> None:
    for expression in (
        "int4range(1, 2) && int8range(1, 2)",
        "int4range(1, 2) @> 1::bigint",
        "int4range(1, 2) + 1",
    ):
        with pytest.raises(mzsql.ProgrammingError, match="operator does not exist"):
            con.execute(f"SELECT {expression}")


def test_no_range_becomes_another_one(con: mzsql.Connection) -> None:
    with pytest.raises(mzsql.ProgrammingError, match="casting from int4range to int8range"):
        con.execute("SELECT int4range(1, 2)::int8range")
    with pytest.raises(mzsql.Error, match="int4range and int8range cannot be matched"):
        con.execute("SELECT int4range(1, 2) UNION SELECT int8range(1, 2)")


def test_values_in_python(con: mzsql.Connection) -> None:
    query = (
        "SELECT int4range(1, 5), numrange(NULL, 2.50, '[]'), 'empty'::daterange, "
        "daterange('2020-01-01', '2020-01-03'), tsrange('2020-01-01', NULL), int4range(1, 1)"
    )
    (row,) = con.execute(query).fetchall()
    assert list(row) == [
        mzsql.Range(1, 5),
        mzsql.Range(None, Decimal("2.5"), "(]"),
        mzsql.Range(empty=True),
        mzsql.Range(dt.date(2020, 1, 1), dt.date(2020, 1, 3)),
        mzsql.Range(dt.datetime(2020, 1, 1), None),
        mzsql.Range(empty=True),
    ]
    assert [str(value) for value in row] == [
        "[1,5)",
        "(,2.5]",
        "empty",
        "[2020-01-01,2020-01-03)",
        '["2020-01-01 00:00:00",)',
        "empty",
    ]
    assert 4 in row[0]
    assert 5 not in row[0]
    assert row[4].upper_inf
    assert row[5].isempty


def test_parameters_and_their_texts(con: mzsql.Connection) -> None:
    given = mzsql.Range(1, 4, "[]")
    found = con.execute("SELECT %s::int4range, k FROM t_int4range WHERE v = %s", [given, given])
    assert {str(row[0]) for row in found.fetchall()} == {"[1,5)"}
    moment = mzsql.Range(dt.datetime(2020, 1, 1, 10, tzinfo=dt.UTC), None)
    ((back,),) = con.execute("SELECT %s::tstzrange", [moment]).fetchall()
    assert back == moment
    assert str(back) == str(moment) == '["2020-01-01 10:00:00+00",)'


def test_columns_survive_files_and_restarts(tmp_path: Path) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text('1,"[1,5]"\n2,empty\n3,\n4,"(,7)"\n')
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE r (k integer, v int4range)")
        con.execute(f"COPY r FROM '{rows}' WITH (FORMAT csv)")
        con.execute("UPDATE r SET v = v * '[2,3]' WHERE k = 1")
        con.execute("DELETE FROM r WHERE v = 'empty'")
    with mzsql.connect(tmp_path / "env") as con:
        found = con.execute("SELECT k, v::text FROM r ORDER BY k").fetchall()
        assert [tuple(row) for row in found] == [(1, "[2,4)"), (3, None), (4, "(,7)")]
        out = tmp_path / "out.csv"
        con.execute(f"COPY (SELECT k, v FROM r ORDER BY k) TO '{out}' WITH (FORMAT csv)")
        assert out.read_text() == '1,"[2,4)"\n3,\n4,"(,7)"\n'
        rows.write_text("5,x\n")
        with pytest.raises(mzsql.DataError, match="Missing left parenthesis"):
            con.execute(f"COPY r FROM '{rows}' WITH (FORMAT csv)")


@pytest.mark.spark
@pytest.mark.long
def test_materialized_views_keep_up(tmp_path: Path) -> None:
    pairs = "a.k AS a, b.k AS b, (a.v * b.v)::text AS x, (a.v @> b.v)::text AS c, (a.n + b.n)::text AS u"
    queries = {
        "grouped": "SELECT v::text AS v, n FROM (SELECT v, count(*) AS n FROM t GROUP BY v) AS g",
        "joined": f"SELECT {pairs} FROM t a JOIN t b ON a.v && b.v AND a.n && b.n",
        "made": "SELECT DISTINCT w::text AS w, int4range(k, k + 3, '[]')::text AS r FROM t",
    }
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute("CREATE TABLE t (k integer, v int4range, w tsrange, n numrange)")
        con.execute(
            "INSERT INTO t VALUES (1, '[1,5)', '[2020-01-01,2020-01-02)', '[1.5,2]'), "
            "(2, 'empty', '(,)', 'empty'), (3, NULL, NULL, NULL), (4, '[1,4]', 'empty', '(,2.5)')"
        )
        for name, query in queries.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        changes = (
            "INSERT INTO t VALUES (5, '(,)', 'empty', '[2,2]')",
            "UPDATE t SET v = '[2,3]' WHERE k = 1",
            "DELETE FROM t WHERE k = 4",
        )
        for change in changes:
            con.execute(change)
            for name, query in queries.items():
                kept = con.execute(f"SELECT * FROM {name}").fetchall()
                asked = con.execute(query).fetchall()
                assert sorted(map(str, kept)) == sorted(map(str, asked)), (change, name)
                assert asked
