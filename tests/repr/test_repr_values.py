"""Values in their three forms: datum, Python, text; intervals as PostgreSQL reads and prints them."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mzsql.repr import types as t
from mzsql.repr.errors import DataError, DatatypeMismatch, InvalidTextRepresentation
from mzsql.repr.interval import Interval, parse_interval
from mzsql.repr.types import SqlType, arrow_type
from mzsql.repr.values import Jsonb, arrow_value, civil, datum_of, datum_text, datums, python_value


@pytest.mark.parametrize(
    ("text", "span", "shown"),
    [
        (
            "1 year 2 mons -3 days +04:05:06.7",
            Interval(14, -3, 14706700000),
            "1 year 2 mons -3 days +04:05:06.7",
        ),
        ("1-2 3 4:05:06", Interval(14, 3, 14706000000), "1 year 2 mons 3 days 04:05:06"),
        ("P1Y2M3DT4H5M6S", Interval(14, 3, 14706000000), "1 year 2 mons 3 days 04:05:06"),
        ("90", Interval(0, 0, 90_000_000), "00:01:30"),
        ("1.5 months", Interval(1, 15, 0), "1 mon 15 days"),
        ("-1 day", Interval(0, -1, 0), "-1 days"),
        ("2 weeks ago", Interval(0, -14, 0), "-14 days"),
        ("3 days -00:00:01", Interval(0, 3, -1_000_000), "3 days -00:00:01"),
        ("0 days", Interval(), "00:00:00"),
        ("100 hours", Interval(0, 0, 360_000_000_000), "100:00:00"),
    ],
)
def test_intervals(text: str, span: Interval, shown: str) -> None:
    assert parse_interval(text) == span
    assert str(span) == shown
    assert parse_interval(shown) == span


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 dayy", 'invalid input syntax for type interval: unknown units dayy: "1 dayy"'),
        (
            "1 year 2 years",
            'invalid input syntax for type interval: YEAR field set twice: "1 year 2 years"',
        ),
        ("", 'invalid input syntax for type interval: ""'),
    ],
)
def test_texts_that_are_no_intervals(text: str, message: str) -> None:
    with pytest.raises(InvalidTextRepresentation) as caught:
        parse_interval(text)
    assert caught.value.message == message


def test_an_interval_out_of_range() -> None:
    with pytest.raises(DataError, match="interval field value out of range"):
        parse_interval("9999999999 years")


@given(st.dates())
def test_dates_have_their_calendar(day: dt.date) -> None:
    datum = datum_of(day, t.DATE)
    assert isinstance(datum, int)
    assert civil(datum) == (day.year, day.month, day.day)
    assert python_value(datum, t.DATE) == day
    assert datum_text(datum, t.DATE) == day.isoformat()


@pytest.mark.parametrize(
    ("value", "typ", "datum", "text"),
    [
        (True, t.BOOLEAN, True, "true"),
        (Decimal("1.50"), SqlType("numeric", scale=2), "1.50", "1.5"),
        (dt.time(12, 34, 56, 500000), t.TIME, 45296500000, "12:34:56.5"),
        (dt.datetime(1969, 12, 31, 23, 59, 59), t.TIMESTAMP, -1_000_000, "1969-12-31 23:59:59"),
        (
            dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
            t.TIMESTAMPTZ,
            1577836800000000,
            "2020-01-01 00:00:00+00",
        ),
        (Interval(1, 2, 3), t.INTERVAL, "1 2 3", "1 mon 2 days 00:00:00.000003"),
        (b"\xff\x00", t.BYTEA, "ff00", "\\xff00"),
        (uuid.UUID(int=7), t.UUID, str(uuid.UUID(int=7)), str(uuid.UUID(int=7))),
        (Jsonb('{"a": 1}'), t.JSONB, '{"a": 1}', '{"a": 1}'),
        (
            ["a", None, "b c"],
            SqlType("list", element=t.TEXT),
            '["a", null, "b c"]',
            '{a,NULL,"b c"}',
        ),
        (1e15, t.DOUBLE, 1e15, "1e+15"),
        (0.0001, t.DOUBLE, 0.0001, "0.0001"),
        (-2.5, t.REAL, -2.5, "-2.5"),
    ],
)
def test_three_forms(value: object, typ: SqlType, datum: object, text: str) -> None:
    assert datum_of(value, typ) == datum
    assert python_value(datum, typ) == value
    assert datum_text(datum, typ) == text
    assert datums(pa.array([arrow_value(datum, typ), None], arrow_type(typ)), typ) == [datum, None]


def test_days_beyond_pythons_calendar_are_text() -> None:
    assert python_value(-1_000_000, t.DATE) == "0769-02-04 BC"
    assert python_value(3_000_000, t.DATE) == "10183-09-21"


def test_what_is_no_value_of_a_type() -> None:
    with pytest.raises(DatatypeMismatch, match="str is no value of type integer"):
        datum_of("1", t.INTEGER)
