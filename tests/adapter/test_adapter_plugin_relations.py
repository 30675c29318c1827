"""Relations that plugins add to the system catalog, read through SQL."""

from __future__ import annotations

import datetime as dt
import itertools
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor, wait
from decimal import Decimal

import pytest

import mzsql
from mzsql.location import (
    PluginColumn,
    PluginRelation,
    PluginRelationFailed,
    PluginWarning,
    default_registry,
    hookimpl,
)
from mzsql.repr.errors import QueryCanceled

SENTINEL = "xyzzyS3NTINEL"


class Plugin:
    def __init__(self, *relations):
        self.relations = list(relations)

    @hookimpl
    def mzsql_builtin_relations(self):
        return self.relations


@pytest.fixture
def install():
    """Registers a plugin with these relations in the process's registry, which is as before in the end."""
    default_registry.cache_clear()
    names = iter("abcdef")

    def register(*relations):
        registry = default_registry()
        told = registry.register(next(names), Plugin(*relations))
        assert told.state == "loaded", told.failure
        return registry

    yield register
    default_registry.cache_clear()


def relation(rows, *columns, name="shop", **more):
    made = columns or (PluginColumn("a", "bigint", nullable=False), PluginColumn("b", "text"))
    return PluginRelation(name, made, "What the shop has.", rows, **more)


def ask(env, query):
    with mzsql.connect(env) as connection:
        return connection.execute(query).fetchall()


def test_a_plugins_relation_is_read_as_any_other(install, tmp_path):
    stock = {1: "tea", 2: None}
    install(relation(lambda _: iter(stock.items())))
    with mzsql.connect(tmp_path / "env") as connection:

        def rows(query):
            return connection.execute(query).fetchall()

        assert rows("SELECT a, b FROM mz_internal.shop ORDER BY a") == [(1, "tea"), (2, None)]
        stock[3] = "milk"
        assert rows("SELECT count(*), max(b) FROM shop WHERE a > 1") == [(2, "milk")]
        connection.execute(
            "CREATE TEMP VIEW wares AS SELECT b FROM mz_internal.shop WHERE b IS NOT NULL"
        )
        assert sorted(rows("SELECT b FROM wares")) == [("milk",), ("tea",)]
        assert rows("SELECT name FROM mz_catalog.mz_sources WHERE name = 'shop'") == [("shop",)]
        described = rows(
            "SELECT c.name, c.type, c.nullable FROM mz_catalog.mz_columns c"
            " JOIN mz_catalog.mz_sources s ON s.id = c.id WHERE s.name = 'shop' ORDER BY c.position"
        )
        assert described == [("a", "bigint", False), ("b", "text", True)]


def test_types_arrive_as_they_are(install, tmp_path):
    values = {
        "boolean": True,
        "smallint": -3,
        "integer": 2**31 - 1,
        "bigint": -(2**63),
        "uint8": 2**63,
        "double": 0.25,
        "numeric": Decimal("12.5"),
        "text": "ü",
        "bytea": b"\x00\xff",
        "date": dt.date(2024, 2, 29),
        "timestamp": dt.datetime(2024, 2, 29, 1, 2, 3, 4),
        "text list": ["a", "b"],
    }
    columns = [PluginColumn(f"c{n}", typ) for n, typ in enumerate(values)]
    install(relation(lambda _: [tuple(values.values())], *columns))
    (row,) = ask(tmp_path / "env", "SELECT * FROM mz_internal.shop")
    assert list(row) == list(values.values())


def test_rows_are_derived_from_where_the_environment_is(install, tmp_path):
    install(relation(lambda at: [(1, at.blob)]))
    ((url,),) = ask(tmp_path / "env", "SELECT b FROM shop")
    assert url == f"file:{tmp_path}/env/blob"


def _raises(_):
    yield 1, "a"
    raise ConnectionError(f"no shop at file://u:{SENTINEL}@h")


def _throw(failure):
    raise failure


class _Mute(Exception):
    def __str__(self):
        raise RuntimeError("says nothing")


class _Hostile:
    def __getattribute__(self, name):
        raise KeyboardInterrupt(name)

    def __repr__(self):
        return "hostile"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (_raises, "ConnectionError: no shop"),
        (lambda _: 1 / 0, "ZeroDivisionError"),
        (lambda _: _throw(ValueError("the shop\nis closed")), "ValueError: the shop is closed"),
        (lambda _: None, "TypeError"),
        (lambda _: sys.exit("bye"), "SystemExit: bye"),
        (lambda _: _throw(KeyboardInterrupt("stop")), "KeyboardInterrupt: stop"),
        (lambda _: _throw(GeneratorExit()), "GeneratorExit"),
        (lambda _: _throw(QueryCanceled("mine")), "QueryCanceled: mine"),
        (lambda _: _throw(PluginRelationFailed("no rows of mine")), "no rows of mine"),
        (lambda _: _throw(_Mute()), "cannot be had: _Mute"),
        (lambda _: _throw(ValueError("v" * 10_000_000)), "v…"),
        (lambda _: 7, "TypeError"),
        (lambda _: {"a": 1}, "a row is not 2 values"),
        (lambda _: ["ab"], "a row is not 2 values"),
        (lambda _: [(1, "x", "y")], "a row is not 2 values"),
        (lambda _: [(1,)], "a row is not 2 values"),
        (lambda _: [7], "a row is not 2 values"),
        (lambda _: [(None, "x")], "column 'a' has a NULL"),
        (lambda _: [("x", "x")], "column 'a' is no bigint"),
        (lambda _: [(2**63, "x")], "column 'a' is no bigint"),
        (lambda _: [(1, 2)], "column 'b' is no text"),
        (lambda _: [(1, "\ud800")], "column 'b' is no text"),
        (lambda _: [(_Hostile(), "x")], "KeyboardInterrupt: __class__"),
        (lambda _: ((n, "") for n in itertools.count()), "more than 100000 rows"),
        (lambda _: ((n, "x" * 2**20) for n in itertools.count()), "more than 64 MiB"),
    ],
)
def test_what_a_function_does_wrong_fails_its_query_alone(install, tmp_path, rows, told):
    install(relation(rows), relation(lambda _: [(5, "five")], name="fine"))
    with mzsql.connect(tmp_path / "env") as connection:
        with pytest.raises(mzsql.Error) as failed:
            connection.execute("SELECT * FROM mz_internal.shop")
        assert "the rows of mz_internal.shop cannot be had" in str(failed.value)
        assert told in str(failed.value)
        assert failed.value.sqlstate == "38000"
        assert failed.value.detail.startswith("The plugin ")
        assert len(str(failed.value)) < 3000
        assert SENTINEL not in str(failed.value) or rows is _raises
        assert connection.execute("SELECT * FROM fine").fetchall() == [(5, "five")]


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("integer", 1.5),
        ("integer", True),
        ("bigint", Decimal(1)),
        ("boolean", 1),
        ("double", "1"),
        ("numeric", 1.5),
        ("text", b"x"),
        ("bytea", "x"),
        ("date", dt.datetime(2024, 2, 29, 1)),
        ("date", 5),
        ("timestamp", 5),
        ("timestamp", dt.datetime(2024, 2, 29, tzinfo=dt.UTC)),
        ("timestamptz", dt.datetime(2024, 2, 29)),
        ("integer list", [1, 1.5]),
        ("integer list", 1),
    ],
)
def test_no_value_is_changed_to_fit_its_column(install, tmp_path, column, value):
    install(relation(lambda _: [(value,)], PluginColumn("a", column)))
    with pytest.raises(mzsql.Error, match=f"column 'a' is no {column}"):
        ask(tmp_path / "env", "SELECT * FROM mz_internal.shop")


def test_values_in_lists_count_too(install, tmp_path, monkeypatch):
    monkeypatch.setattr("mzsql.catalog.plugin_relations.MAX_BYTES", 1 << 20)
    install(relation(lambda _: [(list(range(200_000)),)], PluginColumn("a", "integer list")))
    with pytest.raises(mzsql.Error, match="more than 1 MiB"):
        ask(tmp_path / "env", "SELECT * FROM mz_internal.shop")


@pytest.fixture
def go_on():
    """Lets a function that hangs go on; at the test's end in any case, or it would be the next one's to wait for."""
    made = threading.Event()
    yield made
    made.set()


def test_a_function_that_hangs_fails_its_query_in_time_and_no_other(install, tmp_path, go_on):

    def hang(_):
        assert go_on.wait(60)
        return [(1, "one")]

    install(relation(hang), relation(lambda _: [(5, "five")], name="fine"))
    with mzsql.connect(tmp_path / "env") as connection:
        connection.execute("SET statement_timeout = '300ms'")
        with pytest.raises(mzsql.Error, match=r"statement timeout|has not yielded them within"):
            connection.execute("SELECT * FROM mz_internal.shop")
        # It is not called again while that has not ended, on threads without number.
        with pytest.raises(mzsql.Error, match="an earlier read of it has not ended"):
            connection.execute("SELECT * FROM mz_internal.shop")
        connection.execute("RESET statement_timeout")
        threads = "SELECT object_id, status FROM mz_internal.mz_threads WHERE name = 'plugin-rows'"
        assert ("mz_internal.shop", "running") in connection.execute(threads).fetchall()
        assert connection.execute("SELECT * FROM fine").fetchall() == [(5, "five")]
        go_on.set()
        until = time.monotonic() + 60
        while True:
            try:
                found = connection.execute("SELECT * FROM mz_internal.shop").fetchall()
                break
            except mzsql.Error:
                assert time.monotonic() < until
                time.sleep(0.01)
        assert found == [(1, "one")]


def test_who_reads_a_relation_that_is_being_read_waits_as_long_as_it_may(install, tmp_path, go_on):
    begun = threading.Semaphore(0)
    calls = []

    def slow(_):
        calls.append(len(calls))
        begun.release()
        assert go_on.wait(60)
        return [(len(calls), "one")]

    install(relation(slow))
    query = "SELECT b FROM mz_internal.shop"
    with ThreadPoolExecutor() as pool, mzsql.connect(tmp_path / "env") as connection:
        first = pool.submit(ask, tmp_path / "env", query)
        assert begun.acquire(timeout=60)
        connection.execute("SET statement_timeout = '500ms'")
        with pytest.raises(mzsql.Error, match="statement timeout"):
            connection.execute(query)
        others = [pool.submit(ask, tmp_path / "env", query) for _ in range(2)]
        assert not wait(others, timeout=1).done
        assert len(calls) == 1
        go_on.set()
        assert [one.result(60) for one in (first, *others)] == [[("one",)]] * 3
    assert len(calls) == 3


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (relation(list, name="Bad Name"), "no name"),
        (relation(list, name="mz_tables", schema="mz_catalog"), "a relation of this name"),
        (relation(list, name="fine"), "a relation of this name"),
        (relation(list, schema="public"), "no schema of the system catalog"),
        (relation(list, PluginColumn("a", "colour")), "cannot have the type 'colour'"),
        (relation(list, PluginColumn("a", "text"), PluginColumn("a", "text")), "another name"),
        (relation(None), "no function"),
        (relation(list, *(PluginColumn(f"c{n}", "text") for n in range(1601))), "1600 columns"),
        (PluginRelation("bad", None, "", list), "left out"),
        (PluginRelation("bad", (7,), "", list), "left out"),
        (PluginRelation(7, (PluginColumn("a", "text"),), "", list), "left out"),
        (relation(list, PluginColumn("a", 7)), "left out"),
        (PluginRelation("bad", (PluginColumn("a", "text"),), None, list), "comment is no text"),
    ],
)
def test_a_relation_that_cannot_be_is_reported_and_left_out(install, tmp_path, bad, told):
    install(relation(lambda _: [(5, "five")], name="fine"))
    registry = install(bad)
    with pytest.warns(PluginWarning, match=told):
        assert ask(tmp_path / "env", "SELECT a FROM mz_internal.fine") == [(5,)]
    assert told in registry.installed[-1].failure


@pytest.mark.usefixtures("install")
def test_a_plugin_that_has_relations_without_end_is_reported(tmp_path):
    class Endless:
        @hookimpl
        def mzsql_builtin_relations(self):
            return (relation(list, name=f"r{n}") for n in itertools.count())

    default_registry().register("endless", Endless())
    with pytest.warns(PluginWarning, match="there are more than 1000"):
        assert ask(tmp_path / "env", "SELECT count(*) FROM mz_tables") == [(0,)]


@pytest.mark.usefixtures("install")
def test_a_plugin_that_fails_to_say_what_it_has_is_reported(tmp_path):
    class Broken:
        @hookimpl
        def mzsql_builtin_relations(self):
            raise OSError("away")

    registry = default_registry()
    registry.register("broken", Broken())
    with pytest.warns(PluginWarning, match="OSError: away"):
        assert ask(tmp_path / "env", "SELECT count(*) FROM mz_tables") == [(0,)]
    assert "OSError: away" in registry.installed[-1].failure


def test_a_view_outlives_the_plugin_it_reads_from(install, tmp_path):
    """Ids follow from names and columns: another process's plugins do not shift them; without the plugin the view says what is missing."""
    env = tmp_path / "env"
    stable = {"schema": "mz_catalog"}  # views may read no others
    install(relation(lambda _: [(1, "one")], **stable))
    with mzsql.connect(env) as connection:
        connection.execute("CREATE VIEW wares AS SELECT b FROM mz_catalog.shop")
        assert connection.execute("SELECT * FROM wares").fetchall() == [("one",)]
    default_registry.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error", PluginWarning)
        with mzsql.connect(env) as connection:
            with pytest.raises(mzsql.Error, match="unknown catalog item"):
                connection.execute("SELECT * FROM wares")
            assert connection.execute(
                "SELECT count(*) FROM mz_views WHERE name = 'wares'"
            ).fetchall() == [(1,)]
    install(
        relation(lambda _: [(2, "aardvark")], name="aardvark"),
        relation(lambda _: [(1, "two")], **stable),
    )
    assert ask(env, "SELECT * FROM wares") == [("two",)]
