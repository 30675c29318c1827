"""What runs hydrations and steps: chosen by size, or by ALTER SYSTEM; without Spark no JVM; and what a process that dies leaves."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.adapter.environment import leader
from mzsql.dbapi import connection

_VIEWS = {
    "joined": "SELECT c.region, sum(o.amount) AS total, count(*) AS n FROM o JOIN c ON c.id = o.customer GROUP BY c.region",
    "extremes": "SELECT customer, min(amount) AS least, max(amount) AS most FROM o GROUP BY customer",
    "first": "SELECT id, amount FROM o ORDER BY amount DESC, id LIMIT 3",
    "outside": "SELECT c.id, o.amount FROM c LEFT JOIN o ON o.customer = c.id",
    "kinds": "SELECT count(DISTINCT customer) AS d, avg(amount) AS a FROM o",
    "alone": "SELECT customer FROM o EXCEPT SELECT id FROM c",
    "divided": "SELECT id, amount / customer AS share FROM o WHERE customer <> 0",
}

_CHANGES = (
    "INSERT INTO o VALUES (6, 3, 60), (7, NULL, 70), (8, 1, 0.01)",
    "UPDATE o SET amount = amount + 1 WHERE customer = 1",
    "DELETE FROM o WHERE id IN (2, 6)",
    "DELETE FROM c WHERE id = 1",
    "INSERT INTO c VALUES (1, 'west'), (9, NULL)",
    "DELETE FROM o",
    "INSERT INTO o VALUES (1, 1, 5)",
)


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: Any, **__: Any) -> Any:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(connection, "start_spark", start)


@pytest.fixture
def con(tmp_env: Path) -> Iterator[mzsql.Connection]:
    with mzsql.connect(tmp_env) as made:
        made.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        made.execute("CREATE TABLE o (id bigint, customer bigint, amount numeric(12, 2))")
        made.execute("CREATE TABLE c (id bigint, region text)")
        made.execute("INSERT INTO c VALUES (1, 'north'), (2, 'south'), (3, 'south')")
        made.execute("INSERT INTO o SELECT g, g % 4, g * 10 FROM generate_series(1, 5) AS g")
        for name, query in _VIEWS.items():
            made.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        yield made


def _check(con: mzsql.Connection) -> None:
    for name, query in _VIEWS.items():
        view = sorted(map(repr, con.execute(f"SELECT * FROM {name}").fetchall()))
        assert view == sorted(map(repr, con.execute(query).fetchall())), name


def test_views_are_filled_and_kept_without_a_jvm(con: mzsql.Connection) -> None:
    _check(con)
    for change in _CHANGES:
        con.execute(change)
        _check(con)
    ran = con.execute("SELECT kind, engine, jobs, reason FROM mz_internal.mz_refreshes").fetchall()
    assert {kind for kind, *_ in ran} == {"hydration", "step"}
    assert {(engine, jobs) for _, engine, jobs, _ in ran} == {("duckdb", 0)}
    assert all(reason.startswith("step_engine is duckdb") for *_, reason in ran)


def test_errors_are_rows_of_the_view_in_process_too(con: mzsql.Connection) -> None:
    con.execute("INSERT INTO o VALUES (10, 0, 1)")
    con.execute("CREATE MATERIALIZED VIEW failing AS SELECT sum(amount / customer) AS s FROM o")
    with pytest.raises(mzsql.Error, match="division by zero"):
        con.execute("SELECT * FROM failing").fetchall()
    con.execute("DELETE FROM o WHERE customer = 0")
    expected = con.execute("SELECT sum(amount / customer) FROM o").fetchall()
    assert con.execute("SELECT * FROM failing").fetchall() == expected


def test_small_steps_are_run_in_process_by_default(con: mzsql.Connection) -> None:
    _check(con)
    con.execute("ALTER SYSTEM RESET step_engine")
    assert con.execute("SHOW step_engine").fetchall() == [("auto",)]
    con.execute(_CHANGES[0])
    _check(con)
    ran = con.execute(
        "SELECT engine, reason FROM mz_internal.mz_refreshes WHERE kind = 'step' AND reason NOT LIKE 'step_engine is duckdb%'"
    ).fetchall()
    assert ran
    assert {engine for engine, _ in ran} == {"duckdb"}
    assert any(reason.startswith("3 updates touch ") for _, reason in ran)


def test_an_engine_that_is_none_is_refused(con: mzsql.Connection) -> None:
    with pytest.raises(mzsql.Error, match='invalid value for parameter "step_engine": "hadoop"'):
        con.execute("ALTER SYSTEM SET step_engine = 'hadoop'")


def test_what_was_not_durable_when_a_process_died_is_made_again(
    con: mzsql.Connection, tmp_env: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Whoever leads what was copied is not there: without this the copies would wait until its lease is over, as it lives in truth.
    monkeypatch.setattr(leader, "is_gone", lambda _who: True)
    _check(con)
    for number, change in enumerate(_CHANGES):
        con.execute(change)
        _check(con)
        # As if it had died here: the views are fresh, what their nodes keep is not in its shards yet.
        left = tmp_path / f"left-{number}"
        shutil.copytree(tmp_env, left)
        with mzsql.connect(left) as other:
            _check(other)
            other.execute("INSERT INTO o VALUES (100, 3, 7)")
            _check(other)


def test_a_view_that_was_fresh_is_fresh_after_closing(con: mzsql.Connection, tmp_env: Path) -> None:
    con.execute(_CHANGES[0])
    _check(con)
    ran = "SELECT object_id, upper, kind FROM mz_internal.mz_refreshes ORDER BY upper, object_id"
    before = con.execute(ran).fetchall()
    con.close()
    with mzsql.connect(tmp_env) as again:
        _check(again)
        # Everything was flushed: there is nothing to be made again, and what was done before is still told.
        assert again.execute(ran).fetchall() == before
