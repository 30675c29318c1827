"""Scalar functions and casts through a connection: what PostgreSQL, Python or the Unicode and zone databases answer."""

from __future__ import annotations

import datetime as dt
import random
import unicodedata
import zoneinfo
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from answers_kit import check_same, expected, rows_of

import mzsql


@pytest.fixture(scope="module")
def con(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mzsql.Connection]:
    connection = mzsql.connect(tmp_path_factory.mktemp("scalars") / "env")
    yield connection
    connection.close()


_FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_TEXTS = ("Å", "A\u030a", "ﬁ", "한", "x\u0323\u0307", "")


def test_normal_forms(con: mzsql.Connection, postgres: psycopg.Connection[Any]) -> None:
    calls = [f"normalize('{text}', {form})" for text in _TEXTS for form in _FORMS]
    check_same(con, postgres, f"SELECT {', '.join(calls)}, normalize('A\u030a'), normalize(NULL)")
    values = ", ".join(f"('{text}')" for text in _TEXTS)
    check_same(con, postgres, f"SELECT normalize(x, nfkd) FROM (VALUES {values}) AS v (x)")


def test_normal_forms_of_a_column(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE unnormal (t text)")
    con.execute("INSERT INTO unnormal VALUES ('A\u030a'), (NULL)")
    found = rows_of(con, "SELECT normalize(t) FROM unnormal ORDER BY t")
    assert found == [(unicodedata.normalize("NFC", "A\u030a"),), (None,)]
    with pytest.raises(mzsql.NotSupportedError, match="NFD of anything but constants"):
        con.execute("SELECT normalize(t, NFD) FROM unnormal").fetchall()


_ZONES = ("America/New_York", "Europe/Berlin", "asia/kathmandu", "Africa/Casablanca", "UTC", "EST")


def _told(zone: str, moment: dt.datetime) -> tuple[str, dt.timedelta, dt.timedelta]:
    known = next(name for name in zoneinfo.available_timezones() if name.lower() == zone.lower())
    local = moment.astimezone(zoneinfo.ZoneInfo(known))
    daylight, offset = local.dst(), local.utcoffset()
    assert daylight is not None
    assert offset is not None
    return local.tzname() or "", offset - daylight, daylight


def test_offsets_of_zones(con: mzsql.Connection) -> None:
    rng = random.Random(11)
    first = dt.datetime(1850, 1, 1, tzinfo=dt.UTC)
    change = dt.datetime(2021, 3, 14, 7, tzinfo=dt.UTC)
    moments = [first + dt.timedelta(seconds=rng.randrange(7_800_000_000)) for _ in range(20)]
    moments += [change, change - dt.timedelta(microseconds=1)]
    pairs = [(zone, moment) for zone in _ZONES for moment in moments]
    values = ", ".join(f"('{zone}', timestamptz '{moment}')" for zone, moment in pairs)
    found = rows_of(
        con,
        "SELECT z, m, (o).abbrev, extract(epoch FROM (o).base_utc_offset), extract(epoch FROM (o).dst_offset)"
        f" FROM (SELECT z, m, timezone_offset(z, m) AS o FROM (VALUES {values}) AS v (z, m)) AS t",
    )
    wanted = {(zone, moment): _told(zone, moment) for zone, moment in pairs}
    assert len(found) == len(pairs)
    for zone, moment, name, base, daylight in found:
        told = (name, dt.timedelta(seconds=int(base)), dt.timedelta(seconds=int(daylight)))
        assert told == wanted[zone, moment], (zone, moment)


def test_offsets_of_a_column_and_of_nothing(con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE moments (m timestamptz)")
    con.execute("INSERT INTO moments VALUES ('2021-07-01'), (NULL)")
    call = "timezone_offset('America/New_York', m)"
    found = rows_of(con, f"SELECT ({call}).abbrev, {call} IS NULL FROM moments ORDER BY m")
    assert found == [("EDT", False), (None, True)]
    (row,) = rows_of(
        con, "SELECT timezone_offset(NULL, now()) IS NULL, timezone_offset('UTC', NULL) IS NULL"
    )
    assert row == (True, True)
    local = "timezone_offset('Europe/Berlin', timestamp '2021-07-01 00:00:00')"
    assert rows_of(con, f"SELECT ({local}).abbrev") == [("CEST",)]


def test_quotes_of_dollars(con: mzsql.Connection, postgres: psycopg.Connection[Any]) -> None:
    check_same(con, postgres, r"SELECT $$it's \n$$, $a$x$$y$a$, $$1$$::int + 1, length($$$$)")


_NUMBERS = ("smallint", "integer", "bigint", "real", "double precision", "numeric")


def test_numbers_in_documents(con: mzsql.Connection, postgres: psycopg.Connection[Any]) -> None:
    casts = [f"('{text}'::jsonb)::{kind}" for text in ("3.5", "-7", "1e2") for kind in _NUMBERS]
    check_same(con, postgres, f"SELECT {', '.join(casts)}, '1e25'::jsonb::numeric")
    con.execute("CREATE TABLE documents (i int, d jsonb)")
    con.execute("INSERT INTO documents VALUES (1, '2.5'), (2, NULL), (3, '-1e3')")
    (kinds, query) = (_NUMBERS, "SELECT {} FROM documents ORDER BY i")
    found = rows_of(con, query.format(", ".join(f"d::{kind}" for kind in kinds)))
    assert found == [(3, 3, 3, 2.5, 2.5, 2.5), (None,) * 6, (-1000,) * 6]


def test_texts_of_several_values(con: mzsql.Connection, postgres: psycopg.Connection[Any]) -> None:
    values = "ARRAY[1, NULL], ROW(1, 'a b'), true, INTERVAL '1 day', int4range(1, 2), ARRAY['x y']"
    check_same(con, postgres, f"SELECT concat({values}), concat_ws('-', {values}, NULL)")
    own = "concat(LIST['a b', NULL], MAP['k' => 1], LIST[[true]])"
    assert rows_of(con, f"SELECT {own}") == [('{"a b",NULL}{k=>1}{{t}}',)]


def test_a_case_of_calls_with_more_and_with_fewer_arguments(
    con: mzsql.Connection, postgres: psycopg.Connection[Any]
) -> None:
    calls = "CASE WHEN a > 1 THEN concat(b) ELSE concat(b, 'x') END, CASE WHEN a > 1 THEN greatest(a) ELSE greatest(a, 7) END"
    check_same(
        con, postgres, f"SELECT {calls} FROM (VALUES (1, 'p'), (2, 'q')) AS v (a, b) ORDER BY a"
    )


def test_floats_of_some_bits(con: mzsql.Connection, postgres: psycopg.Connection[Any]) -> None:
    casts = [f"pg_typeof(1::float({bits}))::text" for bits in (1, 24, 25, 53)]
    check_same(con, postgres, f"SELECT {', '.join(casts)}, 0.1::float(24), 0.1::float(53)")


def test_numbers_of_functions(con: mzsql.Connection, postgres: psycopg.Connection[Any]) -> None:
    check_same(
        con,
        postgres,
        "SELECT 'now'::regproc::oid::int, 'pg_catalog.NOW'::regproc::text, 1299::regproc::text, 1397::regproc::text,"
        " 0::regproc::text, '-'::regproc::oid::int, '-'::regclass::oid::int, '-'::regtype::oid::int, 987654321::regproc::text",
    )
    known = "SELECT oid::bigint, proname::text FROM pg_catalog.pg_proc WHERE oid < 100000"
    mine, theirs = rows_of(con, known), set(expected(postgres, known))
    assert len(mine) > 300
    assert set(mine) <= theirs
    assert len({number for number, _ in mine}) == len(mine)


_TYPES = (16, 23, 25, 26, 1007, 1042, 1043, 1082, 1114, 1115, 1184, 1185, 1700, 2950, 3802)


def test_types_with_modifiers(con: mzsql.Connection, postgres: psycopg.Connection[Any]) -> None:
    modifiers = (-1, 3, 6, 14, 655366)
    calls = [f"format_type({number}, {m})" for number in _TYPES for m in modifiers]
    # A char of no length is ``bpchar`` there.
    calls.remove("format_type(1042, -1)")
    check_same(con, postgres, f"SELECT {', '.join(calls)}, getdatabaseencoding()::text")


_BROKEN = {
    "date '2020'": "date: YEAR, MONTH, DAY are all required",
    "timestamp '2020-01'": "timestamp: YEAR, MONTH, DAY are all required",
    "timestamptz '2020-01-'": "timestamp with time zone: YEAR, MONTH, DAY are all required",
    "date '2020-13-01'": "date: MONTH must be [1, 12], got 13",
    "date '2020-01-32'": "date: DAY must be [1, 31], got 32",
    "date '2021-02-29'": "date: invalid or out-of-range date",
    "timestamp '0000-01-01'": "timestamp: YEAR cannot be zero",
    "timestamp '2020-01-01 25:00'": "timestamp: HOUR must be [0, 23], got 25",
    "timestamp '2020-01-01 10:61'": "timestamp: MINUTE must be [0, 59], got 61",
    "time '10:00:61'": "time: SECOND must be [0, 60], got 61",
    "timestamp '2020-01-01 10:00 foo'": "timestamp",
    "timestamptz '2020-01-01 10:00+16'": "timestamp with time zone",
    "time 'abc'": "time",
}


@pytest.mark.parametrize("literal", _BROKEN)
@pytest.mark.parametrize("from_column", [False, True])
def test_broken_dates_and_times(
    con: mzsql.Connection, postgres: psycopg.Connection[Any], literal: str, from_column: bool
) -> None:
    kind, text = literal.split(" ", 1)
    query = (
        f"SELECT x::{kind} FROM (VALUES ({text})) AS v (x)" if from_column else f"SELECT {literal}"
    )
    with pytest.raises(mzsql.DataError) as caught:
        con.execute(query).fetchall()
    said = f"invalid input syntax for type {_BROKEN[literal]}: "
    assert said + text.replace("'", '"') in str(caught.value)
    with pytest.raises(psycopg.DataError) as theirs:
        postgres.execute(f"SELECT {literal}".encode())
    # The displacement of a time zone (22009) is no field of its own here.
    assert theirs.value.sqlstate in (caught.value.sqlstate, "22009")


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (
            "normalize('a', foo)",
            'Expected one of NFC or NFD or NFKC or NFKD, found identifier "foo"',
        ),
        ("normalize()", "Expected an expression, found right parenthesis"),
        (
            "timezone_offset('nowhere', now())",
            "invalid IANA Time Zone Database identifier: 'nowhere'",
        ),
        ("'nosuch'::regproc", 'function "nosuch" does not exist'),
        ("'mz_catalog.now'::regproc", 'function "mz_catalog.now" does not exist'),
        ("'abs'::regproc", 'more than one function named "abs"'),
        ("sum(NULL)", "function sum(unknown) is not unique"),
        ("sum('1')", "function sum(unknown) is not unique"),
        ("avg(INTERVAL '1 day')", "sum(interval) not yet supported"),
        ("1::float(0)", "precision for type float must be within ([1-53])"),
        ("1::float(54)", "precision for type float must be within ([1-53])"),
        ("'1' + '1'", "operator is not unique: unknown + unknown"),
        ("-NULL", "operator is not unique: - unknown"),
        ("substring('abc')", "function substring(unknown) does not exist"),
        ("lower('A', 'B')", "function lower(unknown, unknown) does not exist"),
        ("(1.5 + 2)::interval", "CAST does not support casting from numeric to interval"),
        (
            "'1990-01'::mz_timestamp",
            "could not parse as date and time: invalid input syntax for type timestamp with time zone:"
            ' YEAR, MONTH, DAY are all required: "1990-01": "1990-01"',
        ),
        (
            "array_position(ARRAY[[1]], 1)",
            "searching for elements in multidimensional arrays is not supported",
        ),
        (
            "array_remove(ARRAY[[1]], 1)",
            "removing elements from multidimensional arrays is not supported",
        ),
        ("concat()", "function concat() does not exist"),
        *(
            (f"'[1]'::jsonb::{kind}", f"cannot cast jsonb array to type {kind}")
            for kind in (*_NUMBERS, "boolean")
        ),
        ("'1e20'::jsonb::bigint", '"100000000000000000000" bigint out of range'),
        ("'40000'::jsonb::smallint", '"40000" smallint out of range'),
    ],
)
def test_what_fails(con: mzsql.Connection, expression: str, message: str) -> None:
    with pytest.raises(mzsql.Error) as caught:
        con.execute(f"SELECT {expression}").fetchall()
    assert message in str(caught.value)


@pytest.mark.parametrize("from_column", [False, True])
@pytest.mark.parametrize(
    ("less", "shown"),
    [("2147483648 months", "178956970 years -8 months"), ("2147483648 days",) * 2],
)
def test_what_has_no_opposite_is_not_subtracted(
    con: mzsql.Connection, less: str, shown: str, from_column: bool
) -> None:
    """PostgreSQL subtracts it; Materialize adds the opposite."""
    taken = f"INTERVAL '-{less}'"
    query = (
        f"SELECT INTERVAL '-1 {less.split()[1]}' - x FROM (VALUES ({taken})) AS v (x)"
        if from_column
        else f"SELECT INTERVAL '-1 {less.split()[1]}' - {taken}"
    )
    with pytest.raises(mzsql.DataError, match=f'- -{shown}" interval out of range'):
        con.execute(query).fetchall()
    one_less = less.replace("8 ", "7 ")
    assert rows_of(
        con, f"SELECT INTERVAL '0 days' - INTERVAL '-{one_less}' > INTERVAL '1 day'"
    ) == [(True,)]
