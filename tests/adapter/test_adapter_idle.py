"""An open environment in which nothing happens asks its stores for next to nothing, and still hears at once of what others do."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

import mzsql
from mzsql.adapter.dataflows import history
from mzsql.adapter.environment import leader, opening
from mzsql.location import (
    Determinate,
    blob_around,
    consensus_around,
    open_blob,
    open_consensus,
    open_oracle,
)
from mzsql.persist import Settings
from mzsql.storage.following import FOLLOW_SECONDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

WINDOW = 5.0
#: What a renewal of the leader's lease asks at most: the commit, a look at what a lost race left, letting go of history, maintenance.
RENEWAL_REQUESTS = 5
#: The catalog, the write-ahead log, the expression cache, and some collections.
READERS = 16


class Requests:
    """Opens backends as the registry does, and counts what is asked of them."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.failing: str | None = None

    def _around(self, kind: str) -> Callable[[str, Callable[[], Any]], Any]:
        def around(operation: str, act: Callable[[], T]) -> T:
            self.counts[kind, operation] += 1
            if operation == self.failing:
                raise Determinate("the store is away")
            return act()

        return around

    def open_blob(self, url: str) -> Any:
        return blob_around(open_blob(url), self._around("blob"))

    def open_consensus(self, url: str) -> Any:
        return consensus_around(open_consensus(url), self._around("consensus"))

    def open_oracle(self, *args: Any, **rest: Any) -> Any:
        oracle, counts = open_oracle(*args, **rest), self.counts

        class Counted:
            def __getattr__(self, name: str) -> Any:
                counts["oracle", name] += 1
                return getattr(oracle, name)

        return Counted()

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def watch(self, seconds: float = WINDOW) -> float:
        """Count from nothing for a while; how long that was, in seconds."""
        begun = time.monotonic()
        self.counts.clear()
        time.sleep(seconds)
        counted = self.counts.copy()
        took = time.monotonic() - begun  # no less than what was counted in
        self.counts.clear()
        self.counts.update(counted)
        return took

    def settle(self) -> None:
        """Wait until nothing was asked for two seconds."""
        for _ in range(60):
            before = self.total
            time.sleep(2.0)
            if self.total == before:
                return
        raise AssertionError(f"it never settles: {self.counts}")


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    counting = Requests()
    monkeypatch.setattr(opening, "default_registry", lambda: counting)
    monkeypatch.setattr("mzsql.oracle.open_bare_oracle", counting.open_oracle)
    monkeypatch.setattr(history, "RELEASE_SECONDS", 0.5)
    return counting


def allowed(seconds: float) -> int:
    """How many requests are due in a window: for each of the two followers a wait, for the leader renewals of its lease."""
    waits = 2 * (math.floor(seconds / FOLLOW_SECONDS) + 1)
    renewals = math.floor(seconds / (leader.ALONE_MS * 2 / 3 / 1000)) + 1
    return waits + renewals * RENEWAL_REQUESTS


def test_the_periods_allow_a_fifth_of_a_request_a_second() -> None:
    """In the long run, with a commit and a notification a renewal, of a leader's lease and of the leases of so many readers."""
    renewals = 1000 / (leader.ALONE_MS * 2 / 3)
    heartbeats = READERS * 1000 / (Settings().reader_lease_ms / 4)
    assert 2 / FOLLOW_SECONDS + 2 * (renewals + heartbeats) < 0.2


@pytest.mark.spark
@pytest.mark.long
def test_an_idle_process_asks_for_next_to_nothing(
    tmp_path: Path, spark: SparkSession, requests: Requests
) -> None:
    with mzsql.connect(tmp_path / "env", spark=spark) as con:
        con.execute("SET statement_timeout = '20 min'")
        con.execute("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2), (3, 4)")
        con.execute("CREATE MATERIALIZED VIEW mv AS SELECT a, sum(b) AS s FROM t GROUP BY a")
        con.execute("CREATE MATERIALIZED VIEW over AS SELECT count(*) AS n FROM mv")
        con.execute("CREATE INDEX i ON t (a)")
        con.execute("INSERT INTO t VALUES (5, 6)")
        assert con.execute("SELECT n FROM over").fetchall() == [(3,)]
        requests.settle()
        # What the steps before have made durable, and have taken, is told of within five seconds.
        requests.watch(6.0)
        requests.settle()
        seconds = requests.watch()
        assert requests.total <= allowed(seconds) + 1, requests.counts
        # and it did not fall asleep
        con.execute("INSERT INTO t VALUES (7, 8)")
        assert con.execute("SELECT n FROM over").fetchall() == [(4,)]


@pytest.mark.long
def test_an_idle_subscription_asks_for_little_and_hears_of_a_write(
    tmp_path: Path, requests: Requests
) -> None:
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        with con.subscribe("SUBSCRIBE t") as cursor:
            assert cursor.fetchone()[2:] == (1,)
            rows: list[Any] = []
            fetching = threading.Thread(target=lambda: rows.append(cursor.fetchone()))
            fetching.start()
            requests.settle()
            seconds = requests.watch()
            # nothing is maintained here, so that no lease is renewed either
            assert set(requests.counts) <= {("consensus", "wait")}, requests.counts
            assert requests.total <= 3 * (math.floor(seconds / FOLLOW_SECONDS) + 1)
            con.execute("INSERT INTO t VALUES (2)")
            fetching.join(90)
            assert [row[2:] for row in rows] == [(2,)]


def test_an_idle_subscription_hears_of_a_drop_by_another_process(tmp_path: Path) -> None:
    env = tmp_path / "env"
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        with con.subscribe("SUBSCRIBE t") as cursor:
            assert cursor.fetchone()[2:] == (1,)
            found: list[BaseException] = []

            def fetch() -> None:
                try:
                    cursor.fetchone()
                except mzsql.Error as failure:
                    found.append(failure)

            fetching = threading.Thread(target=fetch)
            fetching.start()
            program = (
                f"import mzsql\nwith mzsql.connect({str(env)!r}) as c: c.execute('DROP TABLE t')"
            )
            subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
            fetching.join(90)
            assert "was dropped" in str(found)


def test_an_idle_process_hears_of_what_another_does(tmp_path: Path, requests: Requests) -> None:
    env = tmp_path / "env"
    # Other tests' environments may be open, or closing.
    before = set(threading.enumerate())
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE t (a int)")
        collections = con.coordinator.env.collections
        heard = itertools.count(1)
        seen: list[int] = []
        end = collections.watch(lambda: seen.append(next(heard)))
        requests.settle()
        requests.counts.clear()
        seen.clear()
        program = f"import mzsql\nwith mzsql.connect({str(env)!r}) as c: c.execute('CREATE TABLE u (b int); INSERT INTO t VALUES (1)')"
        subprocess.run([sys.executable, "-c", program], check=True, timeout=300)
        deadline = time.monotonic() + 90
        state = con.coordinator.env.catalog
        while not (seen and any(i.name == "u" for i in state.state.items.values())):
            assert time.monotonic() < deadline, (seen, requests.counts)
            time.sleep(0.05)
        end()
        # without any statement here; and the process still asks only when it is told
        assert con.execute("SELECT a FROM t").fetchall() == [(1,)]
    left = set(threading.enumerate()) - before
    assert not [one for one in left if one.name.startswith("mzsql-follow")]


def test_followers_of_a_store_that_fails_rest_and_then_hear_again(
    tmp_path: Path, requests: Requests
) -> None:
    with mzsql.connect(tmp_path / "env") as con, mzsql.connect(tmp_path / "env") as other:
        con.execute("CREATE TABLE t (a int)")
        requests.failing = "wait"
        other.execute("CREATE TABLE before (a int)")
        seconds = requests.watch(2.0)
        # two followers of each connection, one of which rests for half a second
        assert requests.counts["consensus", "wait"] <= 2 * seconds * (1 + 2) + 8
        requests.failing = None
        seen: list[int] = []
        end = con.coordinator.env.collections.watch(lambda: seen.append(1))
        other.execute("CREATE TABLE u (b int); INSERT INTO t VALUES (1)")
        deadline = time.monotonic() + 90
        catalog = con.coordinator.env.catalog
        while not (seen and any(i.name == "u" for i in catalog.state.items.values())):
            assert time.monotonic() < deadline, (seen, requests.counts)
            time.sleep(0.05)
        end()
