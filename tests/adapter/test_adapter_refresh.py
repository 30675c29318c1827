"""REFRESH AT and REFRESH EVERY through a connection: what is read between refreshes, over restarts, and what is said of them.

Whatever the clock does meanwhile, a view holds at each time what its query was at its last refresh: so all times are compared.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.adapter.dataflows import history
from mzsql.compute.controller import controller
from mzsql.compute.dependencies import ComputeSettings

QUERY = "SELECT b, sum(a) AS total, count(*) AS n FROM t GROUP BY b"


@pytest.fixture
def con(tmp_path: Path) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path / "env")) as made:
        made.execute("CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        yield made


def rows(con: mzsql.Connection, text: str) -> list[tuple[Any, ...]]:
    return con.execute(text).fetchall()


def refreshes(con: mzsql.Connection, name: str) -> tuple[int | None, int | None]:
    """The last and the next refresh of a view."""
    ((last, following),) = rows(
        con,
        "SELECT r.last_completed_refresh::text::bigint, r.next_refresh::text::bigint"
        " FROM mz_internal.mz_materialized_view_refreshes AS r JOIN mz_objects AS o"
        f" ON o.id = r.materialized_view_id WHERE o.name = '{name}'",
    )
    return last, following


def at(con: mzsql.Connection, query: str, time: int) -> list[tuple[object, ...]]:
    return sorted(rows(con, f"{query} AS OF {time}"))


def frontiers(con: mzsql.Connection, name: str) -> tuple[int, int]:
    """From where on an object can be read, and where it is not complete any more."""
    ((since, upper),) = rows(
        con,
        "SELECT f.read_frontier::text::bigint, f.write_frontier::text::bigint"
        " FROM mz_internal.mz_frontiers AS f JOIN mz_objects AS o ON o.id = f.object_id"
        f" WHERE o.name = '{name}'",
    )
    return since, upper


def test_a_view_holds_what_its_query_was_at_the_last_refresh(
    con: mzsql.Connection, tmp_path: Path
) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (REFRESH EVERY '700 ms') AS {QUERY}")
    con.execute("CREATE MATERIALIZED VIEW over AS SELECT sum(total) AS s FROM v")
    rows(con, "SELECT * FROM v")
    known, _ = refreshes(con, "v")
    assert known is not None
    first = known
    for number in range(3):
        con.execute(f"INSERT INTO t VALUES ({number}, 'x'), ({number}, 'z{number}')")
        _, following = refreshes(con, "v")
        # Waits for the next refresh, with nobody writing meanwhile.
        rows(con, f"SELECT * FROM v AS OF {following}")
    last, _ = refreshes(con, "v")
    assert last is not None
    assert last >= first + 3 * 700
    con.close()
    with mzsql.connect(str(tmp_path / "env")) as again:
        again.execute("DELETE FROM t WHERE b = 'x'")
        _, following = refreshes(again, "v")
        assert following is not None
        rows(again, f"SELECT * FROM v AS OF {following}")
        refreshed = range(first, following + 1, 700)
        some = {*refreshed[:4], *refreshed[-4:]}
        for time in sorted(some | {one - 1 for one in some} - {first - 1}):
            refreshed = time - (time - first) % 700
            assert at(again, "SELECT * FROM v", time) == at(again, QUERY, refreshed), time
        totals = at(again, "SELECT sum(total) AS s FROM v", following)
        assert at(again, "SELECT * FROM over", following) == totals


def test_a_view_stays_as_it_was_after_its_last_refresh(con: mzsql.Connection) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v WITH (REFRESH AT CREATION) AS {QUERY}")
    con.execute("CREATE DEFAULT INDEX ON v")
    before = sorted(rows(con, "SELECT * FROM v"))
    con.execute("INSERT INTO t VALUES (9, 'x')")
    assert sorted(rows(con, "SELECT * FROM v")) == before
    last, following = refreshes(con, "v")
    assert following is None
    assert last is not None
    assert before == at(con, QUERY, last)
    # A transaction reads both at one time.
    mixed = rows(con, "SELECT count(*) FROM v UNION ALL SELECT count(*) FROM t")
    assert sorted(mixed) == [(2,), (3,)]


def test_a_read_waits_for_the_first_refresh(con: mzsql.Connection) -> None:
    con.execute(
        "CREATE MATERIALIZED VIEW v WITH (REFRESH AT mz_now()::text::int8 + 900) AS SELECT a FROM t"
    )
    con.execute("INSERT INTO t VALUES (3, 'z')")
    found = sorted(rows(con, "SELECT * FROM v"))
    last, _ = refreshes(con, "v")
    assert last is not None
    assert found == at(con, "SELECT a FROM t", last)
    ((read,),) = rows(con, "SELECT mz_now()::text::bigint FROM v LIMIT 1")
    assert int(str(read)) >= last


def test_what_is_far_ahead_is_not_waited_for(con: mzsql.Connection) -> None:
    con.execute("SET statement_timeout = '5s'")
    con.execute("CREATE MATERIALIZED VIEW v WITH (REFRESH AT '3000-01-01') AS SELECT a FROM t")
    with pytest.raises(mzsql.OperationalError, match="ahead of the clock"):
        rows(con, "SELECT * FROM v")
    con.execute("CREATE MATERIALIZED VIEW k WITH (REFRESH AT '3000-01-01') AS SELECT 2 AS two")
    con.execute("SET transaction_isolation = 'serializable'")
    assert rows(con, "SELECT * FROM k") == [(2,)]
    assert rows(con, "EXPLAIN TIMESTAMP FOR SELECT * FROM v")


def test_refreshes_that_cannot_be_are_refused(con: mzsql.Connection) -> None:
    with pytest.raises(mzsql.ProgrammingError, match="where not all the inputs are readable"):
        con.execute("CREATE MATERIALIZED VIEW v WITH (REFRESH AT '2000-01-01') AS SELECT a FROM t")
    con.execute("ALTER SYSTEM SET enable_refresh_every_mvs = off")
    with pytest.raises(mzsql.NotSupportedError, match=r"REFRESH EVERY and REFRESH AT .* available"):
        con.execute("CREATE MATERIALIZED VIEW v WITH (REFRESH EVERY '1 h') AS SELECT a FROM t")
    con.execute("CREATE MATERIALIZED VIEW v WITH (REFRESH ON COMMIT) AS SELECT a FROM t")


def test_strategies_are_told_and_kept(con: mzsql.Connection, tmp_path: Path) -> None:
    con.execute(
        "CREATE MATERIALIZED VIEW v WITH (REFRESH EVERY '1 day' ALIGNED TO '2020-02-02 03:04:05',"
        " REFRESH AT '3000-01-01') AS SELECT a FROM t"
    )
    con.execute("CREATE MATERIALIZED VIEW w AS SELECT a FROM t")
    told = (
        "SELECT o.name, s.type, s.interval::text, s.aligned_to::text, s.at::text"
        " FROM mz_internal.mz_materialized_view_refresh_strategies AS s"
        " JOIN mz_objects AS o ON o.id = s.materialized_view_id ORDER BY 1, 2"
    )
    expected = [
        ("v", "at", None, None, "3000-01-01 00:00:00+00"),
        ("v", "every", "24:00:00", "2020-02-02 03:04:05+00", None),
        ("w", "on-commit", None, None, None),
    ]
    assert rows(con, told) == expected
    con.execute("ALTER MATERIALIZED VIEW v SET (RETAIN HISTORY FOR '1 hour')")
    ((_, shown),) = rows(con, "SHOW CREATE MATERIALIZED VIEW v")
    assert "REFRESH = EVERY '1 day' ALIGNED TO '2020-02-02 03:04:05', REFRESH = AT" in str(shown)
    con.close()
    with mzsql.connect(str(tmp_path / "env")) as again:
        assert rows(again, told) == expected


def test_between_refreshes_serializable_reads_are_at_times_that_have_come(
    con: mzsql.Connection,
) -> None:
    con.execute("CREATE MATERIALIZED VIEW v WITH (REFRESH EVERY '1 hour') AS SELECT a FROM t")
    con.execute("CREATE MATERIALIZED VIEW over AS SELECT max(a) AS most FROM v")
    rows(con, "SELECT * FROM v")
    con.execute("SET transaction_isolation = 'serializable'")
    for name in ("v", "over"):
        (here,) = {row[0] for row in rows(con, f"SELECT mz_now()::text::bigint FROM {name}")}
        (now,) = rows(con, "SELECT (extract(epoch FROM now()) * 1000)::bigint")[0]
        assert here <= now
    con.execute("SET transaction_isolation = 'strong session serializable'")
    con.execute("SET statement_timeout = '30 s'")
    assert len(rows(con, "SELECT mz_now()::text, a FROM t")) == 2


def test_views_over_an_index_are_made_between_refreshes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soon = partial(ComputeSettings, apply_seconds=0.1, flush_seconds=0.1, since_seconds=0.1)
    monkeypatch.setattr(controller, "ComputeSettings", soon)
    with mzsql.connect(str(tmp_path / "env")) as con:
        con.execute("CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        con.execute("CREATE MATERIALIZED VIEW v WITH (REFRESH EVERY '1 day') AS SELECT a, b FROM t")
        # It is complete until the next refresh, too.
        con.execute("CREATE MATERIALIZED VIEW w AS SELECT b, a FROM v")
        con.execute("CREATE INDEX vi ON v (a); CREATE INDEX wi ON w (a)")
        _, begun = frontiers(con, "t")
        until = time.monotonic() + 60
        for index in ("vi", "wi"):
            while (known := frontiers(con, index))[0] < begun or not known[1]:
                # What an index need not keep any more moves with what is written.
                assert time.monotonic() < until, f"{index} keeps all"
                con.execute("INSERT INTO t VALUES (3, 'z')")
            since, upper = known
            assert since < frontiers(con, "t")[1] < upper
        joined = (
            "CREATE MATERIALIZED VIEW {0}j AS SELECT r.a, t.b FROM {0} AS r JOIN t ON r.a = t.a"
        )
        con.execute(joined.format("v") + "; " + joined.format("w"))
        con.execute("SET statement_timeout = '30s'")
        for view in ("vj", "wj"):
            assert sorted(rows(con, f"SELECT * FROM {view}")) == [(1, "x"), (2, "y")]
    with mzsql.connect(str(tmp_path / "env")) as con:
        con.execute("SET statement_timeout = '30s'")
        con.execute("INSERT INTO t VALUES (1, 'again')")
        for view in ("vj", "wj"):
            assert sorted(rows(con, f"SELECT * FROM {view}")) == [(1, "again"), (1, "x"), (2, "y")]


def test_a_view_that_no_replica_has_refreshed_for_long_is_refreshed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where what its tables were at its last refresh cannot be read any more: it is right from the next one on."""
    monkeypatch.setattr(history, "RELEASE_SECONDS", 0.0)
    monkeypatch.setattr(history, "RELEASE_WRITES", 1_000_000)
    monkeypatch.setattr(history, "RETAIN_MS", 100)
    env, plain = str(tmp_path / "env"), "SELECT a, b FROM t"
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'x'), (2, 'y')")
        con.execute("CREATE CLUSTER c SIZE = '1', REPLICATION FACTOR = 1")
        for name, query in (("v", QUERY), ("w", plain)):
            con.execute(
                f"CREATE MATERIALIZED VIEW {name} IN CLUSTER c WITH (REFRESH EVERY '1 s') AS {query}"
            )
            rows(con, f"SELECT * FROM {name}")
        con.execute("ALTER CLUSTER c SET (REPLICATION FACTOR = 0)")
    with mzsql.connect(env) as con:
        storage = con.coordinator.env
        missed = storage.clock.now_ms()
        table = storage.catalog.state.by_name("public", "t")
        assert table is not None
        until = time.monotonic() + 120
        while (storage.collections.since(table.id) or 0) <= missed:
            assert time.monotonic() < until
            con.execute("INSERT INTO t VALUES (3, 'x')")
            con.execute("SELECT count(*) FROM t")
            con.coordinator.dataflows.tick()
        monkeypatch.setattr(history, "RETAIN_MS", 60_000)
        con.execute("ALTER CLUSTER c SET (REPLICATION FACTOR = 1)")
        for name, query in (("v", QUERY), ("w", plain)):
            _, missed = refreshes(con, name)
            assert missed is not None
            # The first refresh that is still to come.
            following = missed + -(-max(storage.clock.now_ms() - missed, 0) // 1000) * 1000
            assert at(con, f"SELECT * FROM {name}", following) == at(con, query, following)
