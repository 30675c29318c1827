"""Filters on ``mz_now()`` through a connection: queries at one time, subscriptions, materialized views as the clock goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql

EVENTS = "CREATE TABLE events (name text, since numeric, until numeric)"
VALID = "SELECT name FROM events WHERE mz_now() >= since AND mz_now() < until"


@pytest.fixture
def con(tmp_path: Path) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path / "env")) as made:
        yield made


def rows(con: mzsql.Connection, text: str) -> list[tuple[object, ...]]:
    return con.execute(text).fetchall()


def now(con: mzsql.Connection) -> int:
    ((ts,),) = rows(con, "SELECT mz_now()::text::bigint")
    return int(str(ts))


def test_the_time_of_a_query_goes_on_where_nobody_writes(con: mzsql.Connection) -> None:
    first = then = now(con)
    deadline = time.monotonic() + 60
    while then < first + 1000:
        assert time.monotonic() < deadline, "the time stands still"
        begun = time.time() * 1000
        then = now(con)
    assert begun - 2000 < then < time.time() * 1000 + 2000


def test_a_query_has_the_rows_of_its_time(con: mzsql.Connection) -> None:
    con.execute(EVENTS)
    ts = now(con)
    later = ts + 3_600_000
    con.execute(
        f"INSERT INTO events VALUES ('gone', 0, {ts}), ('now', {ts}, {later}), ('to come', {later}, {later + 1}), ('never', 5, NULL)"
    )
    con.execute(f"CREATE VIEW valid AS {VALID}")
    assert rows(con, VALID) == rows(con, "SELECT * FROM valid") == [("now",)]
    at = now(con)
    assert rows(con, f"SELECT mz_now()::text = '{at}' FROM valid AS OF {at}") == [(True,)]


def test_a_subscription_has_rows_come_and_go_at_their_times(con: mzsql.Connection) -> None:
    con.execute(EVENTS)
    for lead in (1200, 5000, 20_000):
        con.execute("DELETE FROM events")
        at = now(con) + lead
        con.execute(f"INSERT INTO events VALUES ('a', {at}, {at + 1000}), ('b', 0, {at + 500})")
        with con.subscribe(f"SUBSCRIBE ({VALID}) UP TO {at + 10_000}") as changes:
            found = [row for _ in range(4) if (row := changes.fetchone())]
        if found and found[0][0] < at:  # a busy machine may take longer to begin
            break
    assert [(diff, name) for _, diff, name in found] == [(1, "b"), (1, "a"), (-1, "b"), (-1, "a")]
    assert [ts for ts, _, _ in found[1:]] == [at, at + 500, at + 1000]


def test_a_subscription_to_constants_knows_all_that_is_to_come(con: mzsql.Connection) -> None:
    con.execute("CREATE VIEW v AS SELECT * FROM (VALUES ('x', 10), ('y', 20)) AS t (name, at)")
    text = "SUBSCRIBE (SELECT name FROM v WHERE mz_now() >= at) AS OF 5"
    with con.subscribe(text) as changes:
        assert [(int(at), diff, name) for at, diff, name in changes.fetchall()] == [
            (10, 1, "x"),
            (20, 1, "y"),
        ]
    with con.subscribe(f"{text} UP TO 15") as changes:
        assert [name for _, _, name in changes.fetchall()] == ["x"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT mz_now() FROM events", "cannot materialize call to mz_now"),
        (
            "SELECT name FROM events WHERE mz_now() <> since",
            "Unsupported binary temporal operation: NotEq",
        ),
        ("SELECT name FROM events WHERE mz_now() > since OR name = 'x'", "Unsupported temporal"),
        ("SELECT name FROM events WHERE now() > '2024-01-01'", "cannot materialize call to"),
    ],
)
def test_what_cannot_be_maintained_is_refused(
    con: mzsql.Connection, query: str, message: str
) -> None:
    con.execute(EVENTS)
    for statement in (f"SUBSCRIBE ({query})", f"CREATE MATERIALIZED VIEW m AS {query}"):
        with pytest.raises(mzsql.NotSupportedError, match=message):
            con.execute(statement)
    assert rows(con, "SHOW MATERIALIZED VIEWS") == []


def test_numbers_and_moments_are_compared_with_the_time(con: mzsql.Connection) -> None:
    (found,) = rows(
        con,
        "SELECT mz_now() > 1, mz_now() > 1.0, mz_now() < '3000-01-01', mz_now() > DATE '2020-01-01',"
        " mz_now() > TIMESTAMP '2020-01-01', mz_now() < TIMESTAMPTZ '3000-01-01', mz_now() = mz_now()",
    )
    assert found == (True,) * 7
    with pytest.raises(mzsql.ProgrammingError, match="operator"):
        con.execute("SELECT mz_now() + 1")
    with pytest.raises(mzsql.ProgrammingError, match="has been renamed to mz_now"):
        con.execute("SELECT mz_logical_timestamp()")


@pytest.mark.spark
@pytest.mark.long
def test_a_materialized_view_and_an_index_follow_the_clock(tmp_path: Path, spark: object) -> None:
    with mzsql.connect(str(tmp_path / "env"), spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute(EVENTS)
        ts = now(con)
        con.execute(
            f"INSERT INTO events VALUES ('a', 0, {ts + 4000}), ('b', 0, {ts + 3_600_000}), ('a', 0, {ts + 3_600_000})"
        )
        con.execute(
            f"CREATE MATERIALIZED VIEW counted AS SELECT name, count(*) AS n FROM ({VALID}) AS v GROUP BY name"
        )
        con.execute(f"CREATE VIEW valid AS {VALID}")
        con.execute("CREATE INDEX valid_by_name ON valid (name)")
        assert sorted(rows(con, "SELECT * FROM counted")) in (
            [("a", 2), ("b", 1)],
            [("a", 1), ("b", 1)],
        )
        deadline = time.monotonic() + 60
        while rows(con, "SELECT n FROM counted WHERE name = 'a'") != [(1,)]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert now(con) >= ts + 4000
        con.execute("DELETE FROM events WHERE name = 'b'")
        assert rows(con, "SELECT * FROM counted") == [("a", 1)]
        assert rows(con, "SELECT count(*) FROM valid") == [(1,)]
