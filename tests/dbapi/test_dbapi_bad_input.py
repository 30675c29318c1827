"""Whatever a program gives to a public call: what it can use, or an error of PEP 249 that says what was expected; never an internal one.

The surface is found by looking at it, so a call that is new is held to this without being named here.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import enum
import inspect
import itertools
import math
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from junk_kit import JUNK, Unfriendly, UnfriendlyMapping, UnfriendlyText

import mzsql
from mzsql.spark import MzSpark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: What fits somewhere, so that calls get past their first argument.
GOOD: list[Any] = [
    *(1, 2, "SELECT 1", "SELECT %s", "SELECT %(a)s", "COPY t TO STDOUT", "COPY t FROM STDIN"),
    *([5], {"a": 1}, [[1], [2]], "[)", "{}", 0.0, False),
    "INSERT INTO t VALUES (%s)",
]


class Surface:
    """An environment, one of everything that a program gets from it, and every public call, by the kind of object and its name."""

    def __init__(self, place: Path, spark: SparkSession | None = None) -> None:
        self.place = place
        self.spark = spark
        self.con = self._connect()
        self.con.execute("CREATE TABLE t (a int)")
        self.calls = [
            (name, one) for name, make in self.owners().items() for one in calls(name, make())
        ]

    def _connect(self) -> mzsql.Connection:
        return mzsql.connect(self.place, spark=self.spark)

    def open(self) -> mzsql.Connection:
        """A connection that is open."""
        if self.con.closed:
            self.con = self._connect()
        self.con.autocommit = True
        return self.con

    def owners(self) -> dict[str, Callable[[], Any]]:
        """What makes each kind of object with public calls."""
        made = {
            "mzsql": lambda: mzsql,
            "connection": self.open,
            "cursor": lambda: self.open().cursor(),
            "cursor with rows": lambda: self.open().execute("SELECT * FROM generate_series(1, 3)"),
            "closed cursor": self._closed_cursor,
            "copy out": lambda: self.open().cursor().copy("COPY t TO STDOUT").__enter__(),
            "copy in": lambda: self.open().cursor().copy("COPY t FROM STDIN").__enter__(),
            "interval": lambda: mzsql.Interval(1, 2, 3),
            "jsonb": lambda: mzsql.Jsonb("{}"),
            "range": lambda: mzsql.Range(1, 2),
        }
        return made if self.spark is None else {**made, "spark": lambda: self.open().spark}

    def _closed_cursor(self) -> mzsql.Cursor:
        with self.open().cursor() as cursor:
            return cursor

    def check(self) -> None:
        """Nothing is left half-done: the connection answers, or is closed."""
        if not self.con.closed:
            if self.con.in_transaction:
                self.con.rollback()
            assert self.con.execute("SELECT 1").fetchall() == [(1,)]

    def close(self) -> None:
        self.con.close()


def calls(name: str, owner: Any) -> Iterator[str]:
    """The public calls, properties and attributes of an object."""
    for member in dir(owner):
        if not member.startswith("_"):
            found = inspect.getattr_static(owner, member, None)
            starts_spark = member in ("spark", "df") and name != "spark"
            if inspect.ismodule(found) or starts_spark or _is_error(found):
                continue
            yield member


def _is_error(found: object) -> bool:
    return inspect.isclass(found) and issubclass(found, Exception)


def outcome(act: Callable[[], object]) -> None:
    """Run a call. An error of PEP 249 is fine where it says something and is no internal one; any other exception is not."""
    try:
        made = act()
        if isinstance(made, Iterator):
            list(itertools.islice(made, 10))
        elif isinstance(made, mzsql.Connection):
            made.close()
    except mzsql.InternalError:
        raise
    except mzsql.Error as error:
        said = str(error)
    else:
        return
    assert said


def attempt(
    owner: Any, member: str, draw: Callable[[], Any], *, omits: Callable[[], bool] = lambda: False
) -> None:
    """Call one public call with drawn arguments, or set one settable property."""
    static = inspect.getattr_static(type(owner), member, None)
    if isinstance(static, property):
        if static.fset is not None:
            outcome(lambda: setattr(owner, member, draw()))
        outcome(lambda: getattr(owner, member))
        return
    found = getattr(owner, member)
    if not callable(found):
        return
    try:
        parameters = inspect.signature(found).parameters.values()
    except ValueError:
        return  # of the interpreter's own, which tell nothing of themselves
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.default is parameter.empty and parameter.kind != parameter.KEYWORD_ONLY:
            positional.append(draw())
        elif parameter.default is parameter.empty or not omits():
            named[parameter.name] = draw()
    outcome(lambda: found(*positional, **named))


@pytest.fixture(scope="module")
def surface(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Surface]:
    here = tmp_path_factory.mktemp("surface")
    before = Path.cwd()
    os.chdir(here)  # a text that is a path as well makes nothing elsewhere
    made = Surface(here / "env")
    yield made
    made.close()
    os.chdir(before)


def test_the_surface_is_seen(surface: Surface) -> None:
    assert {
        ("mzsql", "connect"),
        ("mzsql", "Interval"),
        ("connection", "subscribe"),
        ("cursor", "fetchmany"),
        ("cursor", "arraysize"),
        ("copy in", "write_row"),
    } <= set(surface.calls)


@settings(max_examples=250, suppress_health_check=list(HealthCheck))
@given(data=some.data())
def test_each_public_call_takes_anything(surface: Surface, data: some.DataObject) -> None:
    name, member = data.draw(some.sampled_from(surface.calls))
    # By number: hypothesis asks what it draws from for its hash.
    numbers = some.integers(0, len(JUNK + GOOD) - 1)
    attempt(
        surface.owners()[name](),
        member,
        lambda: (JUNK + GOOD)[data.draw(numbers)],
        omits=lambda: data.draw(some.booleans()),
    )
    surface.check()


@pytest.mark.parametrize("junk", JUNK, ids=lambda value: type(value).__name__)
def test_each_public_call_takes_each_kind_alone(surface: Surface, junk: Any) -> None:
    for name, member in surface.calls:
        attempt(surface.owners()[name](), member, lambda: junk)
    surface.check()


@pytest.mark.spark
def test_spark_takes_anything(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mzsql.connect(tmp_path / "env", spark=spark) as con:
        # Nothing goes into Spark's catalog: that takes long, and has its own tests.
        monkeypatch.setattr(con, "_spark_options", dict)
        con.execute("CREATE TABLE t (a int)")
        own = [name for name in vars(MzSpark) if not name.startswith("_") and name != "unregister"]
        assert {"sql", "table"} <= set(own)
        for member, junk in itertools.product(own, JUNK):
            if not isinstance(junk, str) or "\ud800" in junk:
                # What Spark says of a text is Spark's.
                attempt(con.spark, member, lambda junk=junk: junk)
        with pytest.raises(mzsql.ProgrammingError, match="a statement must be a str, not int"):
            con.spark.sql(5)  # type: ignore[arg-type]
        assert con.execute("SELECT 1").df().collect()[0][0] == 1


def test_use_after_close(surface: Surface) -> None:
    with mzsql.connect(surface.place) as con:
        cursor = con.execute("SELECT 1")
    for owner in (con, cursor):
        for member in calls("", owner):
            attempt(owner, member, lambda: "SELECT 1")
    with pytest.raises(mzsql.InterfaceError, match="closed"):
        cursor.setinputsizes([])


def test_cursors_answer_in_other_threads(surface: Surface) -> None:
    cursor = surface.open().cursor()
    found: list[object] = []

    def work() -> None:
        for sql, params in (("SELECT %s", 5), (None, None), ("SELECT %s", [3])):
            try:
                found.append(cursor.execute(sql, params).fetchall())  # type: ignore[arg-type]
            except mzsql.ProgrammingError as error:
                found.append(str(error).partition(" ")[0])

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == ["query", "a", [(3,)]]


# --- what is said -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c: c.execute("SELECT %s", 5), "sequence or a mapping, not int 5"),
        (lambda c: c.execute("SELECT %s", "x"), "sequence or a mapping, not str 'x'"),
        (lambda c: c.execute("SELECT %s", {1}), "sequence or a mapping, not set"),
        (lambda c: c.execute(None), "a statement must be a str, not None"),
        (lambda c: c.execute(b"SELECT 1"), "a statement must be a str, not bytes"),
        (lambda c: c.execute(5), "a statement must be a str, not int 5"),
        (lambda c: c.executemany("SELECT %s", 5), "seq_of_parameters must be an iterable"),
        (lambda c: c.executemany("SELECT %s", [5]), "sequence or a mapping, not int 5"),
        (lambda c: c.cursor().copy(7), "a statement must be a str, not int 7"),
        (lambda c: c.execute("SELECT 1").fetchmany("x"), "size must be a whole number"),
        (lambda c: c.execute("SELECT 1").fetchmany(-1), "size must be a whole number"),
        (lambda c: c.execute("SELECT 1").fetchmany(timeout="x"), "timeout must be a number"),
        (lambda c: setattr(c.cursor(), "arraysize", 0), "arraysize must be a whole number"),
        (lambda c: setattr(c, "autocommit", 1), "autocommit must be True or False, not int 1"),
        (lambda c: c.cursor().callproc(5), "procname must be a str, not int 5"),
        (lambda _: mzsql.connect(5), "path must be a str or a path, not int 5"),
        (lambda _: mzsql.connect("a\0b"), "path must be a text that is not empty, without"),
        (lambda _: mzsql.connect(""), "path must be a text that is not empty"),
        (lambda _: mzsql.connect(b"env"), "path must be a str or a path, not bytes"),
        (lambda _: mzsql.connect("x", spark=5), "spark must be a SparkSession, not int 5"),
        (lambda _: mzsql.connect("x", read_only="yes"), "read_only must be True or False"),
        (lambda _: mzsql.connect("x", deploy_generation=1.5), "deploy_generation must be a whole"),
        (lambda _: mzsql.connect("x", maintenance="no"), "maintenance must be 'in process' or"),
        (lambda _: mzsql.connect(blob=5, consensus="mem:"), "blob must be a str, not int 5"),
        (lambda _: mzsql.Interval("x"), "months must be a whole number"),
        (lambda _: mzsql.Interval(months=2**31), "months must be a whole number"),
        (lambda _: mzsql.Jsonb(5), "text must be a str, not int 5"),
        (lambda _: mzsql.Range(1, 2, "<>"), r"bounds must be one of"),
        (lambda _: mzsql.Date("x", 1, 1), "not a date: str 'x', int 1, int 1"),
        (lambda _: mzsql.Binary(5), "data must be bytes, not int 5"),
        (lambda _: mzsql.TimestampFromTicks("x"), "ticks must be a number"),
    ],
)
def test_an_error_says_what_was_expected_and_given(
    surface: Surface, call: Callable[[Any], object], said: str
) -> None:
    con = surface.open()
    # A connection has no executemany of its own.
    target = con.cursor() if said.startswith(("seq_", "sequence")) else con
    with pytest.raises(mzsql.ProgrammingError, match=said):
        call(target)
    surface.check()


@pytest.mark.parametrize(
    ("call", "said", "sqlstate"),
    [
        (lambda: mzsql.Jsonb("{bad"), "invalid input syntax for type jsonb", "22P02"),
        (lambda: mzsql.Jsonb("[" * 100_000), "nests too deeply", "22P02"),
        (lambda: mzsql.Date(2024, 13, 1), "not a date: int 2024, int 13", "22008"),
        (lambda: mzsql.Timestamp(10**30, 1, 1), "not a timestamp", "22008"),
        (lambda: mzsql.DateFromTicks(1e300), "not a time since the epoch", "22008"),
        (lambda: mzsql.Interval(days=2**31 - 1).as_timedelta(), "too long", "22008"),
        (lambda: mzsql.connect("\ud800"), "path must be Unicode text", "22021"),
    ],
)
def test_values_that_there_are_not(call: Callable[[], object], said: str, sqlstate: str) -> None:
    with pytest.raises(mzsql.DataError, match=said) as caught:
        call()
    assert caught.value.sqlstate == sqlstate


def test_a_refused_call_keeps_what_there_was(surface: Surface) -> None:
    con = surface.open()
    cursor = con.execute("SELECT * FROM generate_series(1, 3)")
    assert cursor.fetchone() == (1,)
    with pytest.raises(mzsql.ProgrammingError):
        cursor.execute("SELECT %s", 5)
    assert cursor.fetchall() == [(2,), (3,)]
    con.execute("BEGIN; INSERT INTO t VALUES (1)")
    with pytest.raises(mzsql.ProgrammingError):
        con.execute(None)
    con.execute("COMMIT; DELETE FROM t")


# --- parameters -------------------------------------------------------------------------------------


class Plain(enum.Enum):
    ONE = 1


class Texts(str, enum.Enum):  # noqa: UP042  of both kinds, as programs written for older versions have it
    ONE = "the text"


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (2**64, decimal.Decimal(2**64)),
        (True, True),
        (1e308, 1e308),
        (np.float64(1.5), 1.5),
        (np.float32(1.5), 1.5),
        (np.longdouble(1.5), 1.5),
        (np.int8(-3), -3),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (
            np.array(["2024-01-01T01:02:03.5"], "datetime64[ns]"),
            [dt.datetime(2024, 1, 1, 1, 2, 3, 500_000)],
        ),
        (np.datetime64("2024-02-03"), dt.date(2024, 2, 3)),
        (np.datetime64("2024-01-01T00:00:00.123456789"), dt.datetime(2024, 1, 1, 0, 0, 0, 123456)),
        (np.datetime64("-0043-03-15"), "0044-03-15 BC"),
        (np.datetime64("NaT"), None),
        (np.timedelta64(3, "D"), mzsql.Interval(days=3)),
        (np.timedelta64(14, "M"), mzsql.Interval(months=14)),
        (pd.NaT, None),
        (pd.NA, None),
        (pd.Timestamp("2024-01-01", tz="UTC"), dt.datetime(2024, 1, 1, tzinfo=dt.UTC)),
        (decimal.Decimal("1e-39"), decimal.Decimal("1e-39")),
        (decimal.Decimal("-0"), decimal.Decimal(0)),
        (decimal.Decimal("0e-9999999"), decimal.Decimal(0)),
        (dt.date.max, dt.date.max),
        (
            dt.datetime.max.replace(tzinfo=dt.timezone(dt.timedelta(hours=-5))),
            "10000-01-01 04:59:59.999999+00",
        ),
        (
            dt.datetime.min.replace(tzinfo=dt.timezone(dt.timedelta(hours=5))),
            "0001-12-31 19:00:00+00 BC",
        ),
        (dt.datetime(2024, 10, 27, 2, 30, fold=1), dt.datetime(2024, 10, 27, 2, 30)),
        (dt.timedelta(microseconds=-1), mzsql.Interval(microseconds=-1)),
        (bytearray(b"a\0"), b"a\0"),
        (memoryview(b"abcd")[::2], b"ac"),
        ([1, None], [1, None]),
        ([], "{}"),
        (Plain.ONE, "ONE"),
        (Texts.ONE, "the text"),
        (UnfriendlyText("x'y"), "x'y"),
        (mzsql.Jsonb('{"a": 1}'), mzsql.Jsonb('{"a":1}')),
        (mzsql.Range(1, 2), "[1,2)"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_every_type(surface: Surface, value: object, answer: object) -> None:
    con = surface.open()
    assert con.execute("SELECT %s", [value]).fetchall() == [(answer,)]
    assert con.execute("SELECT %(v)s", {"v": value, "unused": object()}).fetchall() == [(answer,)]


def test_numbers_that_are_none(surface: Surface) -> None:
    con = surface.open()
    params = [float("nan"), decimal.Decimal("NaN"), float("-inf")]
    ((a, b, c),) = con.execute("SELECT %s, %s, %s", params).fetchall()
    assert math.isnan(a)
    assert b.is_nan()
    assert c == float("-inf")


def test_an_empty_list_has_the_type_that_its_place_gives(surface: Surface) -> None:
    con = surface.open()
    con.execute("CREATE TABLE lists (a int[], b text list)")
    con.execute("INSERT INTO lists VALUES (%s, %s)", [[], []])
    assert con.execute("SELECT * FROM lists WHERE 1 <> ALL (%s)", [[]]).fetchall() == [([], [])]


@pytest.mark.parametrize(
    ("value", "error", "sqlstate", "said"),
    [
        ("a\0b", mzsql.DataError, "22021", 'invalid byte sequence for encoding "UTF8": 0x00'),
        ("a\ud800", mzsql.DataError, "22021", 'for encoding "UTF8": 0xed 0xa0 0x80'),
        (10**5000, mzsql.DataError, "22003", "out of range for type numeric"),
        (decimal.Decimal("1e9999"), mzsql.DataError, "22003", '"1E[+]9999" is out of range'),
        (decimal.Decimal("1e-99999999"), mzsql.DataError, "22003", "out of range for type numeric"),
        (decimal.Decimal("-Infinity"), mzsql.DataError, "22003", "cannot be infinite"),
        (dt.time(1, tzinfo=dt.UTC), mzsql.ProgrammingError, "22023", "cannot have a time zone"),
        ({"a": 1}, mzsql.ProgrammingError, "22023", "cannot adapt type 'dict'"),
        ({1, 2}, mzsql.ProgrammingError, "22023", "cannot adapt type 'set'"),
        (1j, mzsql.ProgrammingError, "22023", "cannot adapt type 'complex'"),
        (np.complex128(1j), mzsql.ProgrammingError, "22023", "cannot adapt type 'complex'"),
        (Unfriendly(), mzsql.ProgrammingError, "22023", "cannot adapt type 'Unfriendly'"),
        ([1, "x"], mzsql.DataError, "22P02", "invalid input syntax for type integer"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_without_a_type(
    surface: Surface, value: object, error: type[mzsql.Error], sqlstate: str, said: str
) -> None:
    con = surface.open()
    with pytest.raises(error, match=said) as caught:
        con.execute("SELECT %s", [value])
    assert caught.value.sqlstate == sqlstate
    surface.check()


@pytest.mark.parametrize(
    ("sql", "params", "said"),
    [
        ("SELECT %s, %s", [1], "the query has 2 placeholders but 1 parameter was passed"),
        ("SELECT 1", [1], "the query has 0 placeholders but 1 parameter was passed"),
        ("SELECT %s, %(a)s", [1], "named placeholders need a mapping"),
        ("SELECT %s, %(a)s", {"a": 1}, "positional placeholders need a sequence"),
        ("SELECT %(a)s", {}, "query parameter missing: a"),
        ("SELECT %(a)s", UnfriendlyMapping(a=1), "parameter 'a' cannot be read: RuntimeError"),
        ("SELECT 5 % 2", [], "only '%s' and '%[(]name[)]s' are allowed"),
    ],
)
def test_parameters_that_do_not_fit(surface: Surface, sql: str, params: Any, said: str) -> None:
    con = surface.open()
    with pytest.raises(mzsql.ProgrammingError, match=said):
        con.execute(sql, params)


@pytest.mark.parametrize("text", ["SELECT '\ud800'", "SELECT 1 -- \udfff", "SELECT '\0'", "\0"])
def test_characters_that_no_statement_has(surface: Surface, text: str) -> None:
    con = surface.open()
    with pytest.raises(mzsql.DataError, match="invalid byte sequence") as caught:
        con.execute(text)
    assert caught.value.sqlstate == "22021"
    assert caught.value.position == next(i for i, c in enumerate(text, 1) if c in "\0\ud800\udfff")
    with contextlib.suppress(mzsql.Error):
        con.subscribe(text)
    surface.check()


# --- texts in statements ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (r"""SELECT '"\ud800"'::jsonb""", "lone surrogate in hex escape"),
        (r"""SELECT '{"\ud800": 1}'::jsonb""", "lone surrogate in hex escape"),
        ("SELECT '1e9999999999999999999'::jsonb", "number out of range"),
        ("SELECT map 'x'", 'type "map" does not exist'),
        ("COPY t FROM '~nobody_at_all/x'", "could not open file"),
        ("COPY t TO '~nobody_at_all/x'", "could not open file"),
        (f"COPY t FROM '/{'x' * 5000}'", "File name too long"),
        (f"COPY t TO '/{'x' * 5000}'", "File name too long"),
        (r"COPY t FROM E'/x\u0000'", "U[+]0000"),
    ],
    ids=lambda text: text[:24],
)
def test_texts_that_are_none_of_what_they_should_be(surface: Surface, sql: str, said: str) -> None:
    with pytest.raises(mzsql.DatabaseError, match=said) as caught:
        surface.open().execute(sql)
    assert not isinstance(caught.value, mzsql.InternalError)


def test_a_tiny_number_in_a_document_is_not_written_out(surface: Surface) -> None:
    ((found,),) = surface.open().execute("SELECT '1e-99999999'::jsonb").fetchall()
    assert found == mzsql.Jsonb("0") or len(found.text) < 2000


@pytest.mark.parametrize("path", ["~nobody_at_all/env", "/dev/null/env", "x" * 5000])
def test_places_where_no_environment_can_be(path: str) -> None:
    with pytest.raises(mzsql.OperationalError, match="environment in"):
        mzsql.connect(path)


_DIGITS = "1" * 5000


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT -{_DIGITS}",
        f"SELECT 1 ORDER BY {_DIGITS}",
        f"SELECT CAST(1 AS varchar({_DIGITS}))",
        f"SELECT CAST(1 AS numeric({_DIGITS}))",
        f"SELECT '{{{_DIGITS}}}'::int[]",
        f"SELECT '[{_DIGITS},2)'::int4range",
        f"SELECT '{_DIGITS}'::int",
        f"SELECT * FROM (SELECT 1) OPTIONS (LIMIT INPUT GROUP SIZE = {_DIGITS})",
        f"SET statement_timeout = {_DIGITS}",
        f"SET statement_timeout = '{_DIGITS}ms'",
        f"CREATE CLUSTER x REPLICAS (r (SIZE = {_DIGITS}))",
        f"FETCH {_DIGITS} c",
    ],
    ids=lambda text: text.replace(_DIGITS, "N"),
)
def test_numbers_of_more_digits_than_python_reads(surface: Surface, text: str) -> None:
    con = surface.open()
    with pytest.raises(mzsql.Error) as caught:
        con.execute(text)
    assert not isinstance(caught.value, mzsql.InternalError), str(caught.value)[:200]
    surface.check()


def test_zeros_before_a_number_say_nothing(surface: Surface) -> None:
    con = surface.open()
    zeros = "0" * 5000
    assert con.execute(f"SELECT '{{-{zeros}7}}'::int[]").fetchall() == [([-7],)]
