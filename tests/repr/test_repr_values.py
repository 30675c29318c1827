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
from mzsql.repr.interval import Interval
from mzsql.repr.interval_text import Cut, parse_interval
from mzsql.repr.types import SqlType, arrow_type
from mzsql.repr.values import Jsonb, arrow_value, civil, datum_of, datum_text, datums, python_value


@pytest.mark.parametrize(
    ("text", "span", "shown"),
    [
        (
            "1 year 2 mons -3 days +04:05:06.7",
            Interval(14, -3, 14706700000),
            "1 year 2 months -3 days +04:05:06.7",
        ),
        ("1-2 3 4:05:06", Interval(14, 3, 14706000000), "1 year 2 months 3 days 04:05:06"),
        ("P1Y2M3DT4H5M6S", Interval(14, 3, 14706000000), "1 year 2 months 3 days 04:05:06"),
        ("90", Interval(0, 0, 90_000_000), "00:01:30"),
        ("1.5 months", Interval(1, 15, 0), "1 month 15 days"),
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
    with pytest.raises(InvalidTextRepresentation, match="Overflows maximum months"):
        parse_interval("9999999999 years")
    with pytest.raises(InvalidTextRepresentation, match="number too large"):
        parse_interval("99999999999999999999 days")
    with pytest.raises(DataError, match="interval field value out of range"):
        parse_interval("2562047788:00:54.775807", Cut("second", None, 2))


@pytest.mark.parametrize(
    ("text", "cut", "shown"),
    [
        ("1-2 3 4:05:06.7", Cut("year"), "1 year"),
        ("1-2 3 4:05:06.7", Cut("month"), "1 year 2 months"),
        ("1-2 3 4:05:06.7", Cut("minute", "month"), "2 months 3 days 04:05:00"),
        ("1-2 3 4:05:06.7", Cut("hour", "day"), "3 days 04:00:00"),
        ("7:08", Cut("second", "minute"), "00:07:08"),
        ("7", Cut("hour"), "07:00:00"),
        ("1.2345649", Cut("second", None, 5), "00:00:01.23457"),
        ("1.987654", Cut("second", None, 1), "00:00:02"),
        ("7:08:09 4-5 6", Cut("day"), "4 years 5 months 6 days"),
    ],
)
def test_intervals_cut_to_fields(text: str, cut: Cut, shown: str) -> None:
    assert str(parse_interval(text, cut)) == shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2:", "02:00:00"),
        ("4-", "4 years"),
        ("-::3.5", "-00:00:03.5"),
        (":::2- ::5 ::::6:", "2 years 5 days 06:00:00"),
        ("03-02!4~05:06:07", "3 years 2 months 4 days 05:06:07"),
        ("3year 4months 5.5days", "3 years 4 months 5 days 12:00:00"),
        ("02:03:04minute hour", "02:03:04"),
        ("20.333 years", "20 years 3 months"),
        ("2.999999999999 days", "2 days 23:59:59.999914"),
        ("0.5 us", "00:00:00.000001"),
    ],
)
def test_mixed_styles_of_intervals(text: str, shown: str) -> None:
    assert str(parse_interval(text)) == shown


@pytest.mark.parametrize(
    "text", ["-1 ::.5", "-:::1", "1 2-3 4:5", "1+2:3", "2.5 s 3 ms", "1-2 3-4", "1:2 3 s"]
)
def test_ambiguous_intervals_are_refused(text: str) -> None:
    with pytest.raises(InvalidTextRepresentation, match="invalid input syntax for type interval"):
        parse_interval(text)


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
        (Decimal("1.50"), SqlType("numeric", scale=2), "1.5", "1.5"),
        (dt.time(12, 34, 56, 500000), t.TIME, 45296500000, "12:34:56.5"),
        (dt.datetime(1969, 12, 31, 23, 59, 59), t.TIMESTAMP, -1_000_000, "1969-12-31 23:59:59"),
        (
            dt.datetime(2020, 1, 1, tzinfo=dt.UTC),
            t.TIMESTAMPTZ,
            1577836800000000,
            "2020-01-01 00:00:00+00",
        ),
        (Interval(1, 2, 3), t.INTERVAL, "1 2 3", "1 month 2 days 00:00:00.000003"),
        (b"\xff\x00", t.BYTEA, "ff00", "\\xff00"),
        (uuid.UUID(int=7), t.UUID, str(uuid.UUID(int=7)), str(uuid.UUID(int=7))),
        (Jsonb('{"a":1}'), t.JSONB, '{"a":1}', '{"a":1}'),
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
