"""Followers: woken by other processes, for their keys alone, over lost connections, and at little cost to the server."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from mzsql_postgres import PostgresConsensus, notifications, read_options
from mzsql_postgres.dialects import GuardedPostgres
from mzsql_postgres.sessions import STATEMENTS
from postgres_server import PostgresServer

from mzsql.location import Versioned, open_blob, open_consensus
from mzsql.persist import PersistClient
from mzsql.threads import PROCESS

LISTENER = "mzsql-postgres-listener"


class Stepwise(GuardedPostgres):
    """PostgreSQL as if it lacked what CockroachDB lacks: notifications, advisory locks, transactional changes of a schema."""

    notifies = False
    locks = False
    keys_table = GuardedPostgres.keys_table.replace("TABLE", "TABLE IF NOT EXISTS")
    consensus_table = GuardedPostgres.consensus_table.replace("TABLE", "TABLE IF NOT EXISTS")
    oracle_table = GuardedPostgres.oracle_table.replace("TABLE", "TABLE IF NOT EXISTS")


def opened(url: str, dialect: GuardedPostgres | None = None) -> PostgresConsensus:
    return PostgresConsensus(read_options(urlsplit(url)), dialect)


def sent() -> float:
    """Statements of all kinds so far."""
    return sum(
        sample.value
        for metric in STATEMENTS.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    )


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60.0
    while not true():
        assert time.monotonic() < end
        time.sleep(0.01)


def listening(consensus: PostgresConsensus, key: str) -> None:
    """Wait until the handle follows the key by notifications."""
    followers = consensus._followers

    def synced() -> bool:
        consensus.wait(key, 2**62, 0.01)
        return followers._live and followers._keys[key].synced == followers._generation

    until(synced)


def _append(url: str, key: str, count: int) -> None:
    with contextlib.closing(open_consensus(url)) as consensus:
        for _ in range(count):
            head = consensus.head(key)
            n = 0 if head is None else head.seqno + 1
            assert consensus.compare_and_set(key, n - 1 if n else None, Versioned(n, b""))


def test_other_process_wakes(url: str) -> None:
    """A follower that never looks by itself hears of each entry another process writes."""
    with contextlib.closing(opened(url)) as consensus:
        listening(consensus, "k")
        process = multiprocessing.get_context("spawn").Process(target=_append, args=(url, "k", 5))
        process.start()
        before = sent()
        for n in range(5):
            assert consensus.wait("k", n - 1, 60.0)
        process.join()
        assert sent() - before <= 1  # at most the slow look


def test_only_its_key_wakes(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry of another key wakes nobody; one of a key whose name is odd wakes its follower."""
    woken: list[str] = []
    wait_for = threading.Condition.wait_for
    odd = "k 'ö\n\" %s $1"
    with contextlib.closing(opened(url)) as consensus, contextlib.closing(opened(url)) as other:
        for key in ("a", odd):
            listening(consensus, key)

        def follow(key: str) -> None:
            assert consensus.wait(key, -1, 60.0)
            woken.append(key)

        threads = [threading.Thread(target=follow, args=(key,)) for key in ("a", odd)]
        for thread in threads:
            thread.start()
        until(lambda: all(one.waiting for one in consensus._followers._keys.values()))
        assert other.compare_and_set(odd, None, Versioned(0, b""))
        threads[1].join()
        assert woken == [odd]
        assert consensus._followers._keys["a"].waiting == 1
        assert other.compare_and_set("a", None, Versioned(0, b""))
        threads[0].join()
    assert wait_for is threading.Condition.wait_for
    del monkeypatch


def test_idle_followers_cost_nothing(url: str) -> None:
    """Many followers of many keys, waiting again and again in slices, send nothing at all while nothing happens."""
    with contextlib.closing(opened(url)) as consensus:
        for n in range(20):
            listening(consensus, f"k{n}")
        consensus._followers._wake()
        time.sleep(0.2)
        before = sent()

        def follow(key: str) -> None:
            for _ in range(10):
                assert not consensus.wait(key, 0, 0.1)

        threads = [threading.Thread(target=follow, args=(f"k{n}",)) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sent() - before <= 1


def test_entries_race_with_listening(url: str) -> None:
    """Whatever moment an entry comes at while a handle begins to listen, its follower hears of it."""
    with contextlib.closing(opened(url)) as writer:
        for n in range(40):
            with contextlib.closing(opened(url)) as consensus:
                timer = threading.Timer(
                    0.001 * n,
                    writer.compare_and_set,
                    (f"k{n}", None, Versioned(0, b"")),
                )
                timer.start()
                assert consensus.wait(f"k{n}", -1, 20.0)
                timer.join()


def test_listener_lost(server: PostgresServer, url: str) -> None:
    """A listening connection that is terminated is opened anew, and what came meanwhile is found."""
    before = threading.active_count()
    with contextlib.closing(opened(f"{url}&application_name=follower")) as consensus:
        with contextlib.closing(opened(url)) as other:
            listening(consensus, "k")
            for n in range(5):
                generation = consensus._followers._generation
                assert server.kill_backends("follower") >= 1
                assert other.compare_and_set("k", n - 1 if n else None, Versioned(n, b""))
                assert consensus.wait("k", n - 1, 60.0)
                until(lambda g=generation: consensus._followers._generation > g)
        assert threading.active_count() < before + 20


def test_notification_lost(
    server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that dies before it tells anybody: the slow look finds the entry."""
    monkeypatch.setattr(notifications, "LOOK_SECONDS", 0.3)
    with contextlib.closing(opened(url)) as consensus:
        listening(consensus, "k")
        schema = read_options(urlsplit(url)).schema
        server.execute(f"INSERT INTO \"{schema}\".consensus VALUES ('k', 0, '')")
        assert consensus.wait("k", -1, 60.0)


def test_thread_goes_when_nobody_waits(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends, with its connection, and begins again for the next."""
    monkeypatch.setattr(notifications, "LINGER_SECONDS", 1.0)
    monkeypatch.setattr(notifications, "LOOK_SECONDS", 0.1)
    with contextlib.closing(opened(url)) as consensus:
        for _ in range(2):
            assert not consensus.wait("k", 0, 0.05)
            assert consensus._followers._thread is not None
            until(lambda: consensus._followers._thread is None)


def test_without_notifications(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that has none: the keys are looked at, all by one statement, less and less often while nothing happens."""
    monkeypatch.setattr(notifications, "_LONGEST_POLL", 0.5)
    with (
        contextlib.closing(opened(url, Stepwise())) as consensus,
        contextlib.closing(opened(url, Stepwise())) as other,
    ):
        for key in ("a", "b", "c"):
            assert not consensus.wait(key, -1, 0.1)
        threads = [
            threading.Thread(target=consensus.wait, args=(key, -1, 3.0)) for key in ("b", "c")
        ]
        for thread in threads:
            thread.start()
        before = sent()
        assert not consensus.wait("a", -1, 2.0)
        assert sent() - before <= 12
        assert other.compare_and_set("a", None, Versioned(0, b""))
        assert consensus.wait("a", -1, 60.0)
        for thread in threads:
            thread.join()


def test_timeline_of_a_stepwise_schema(server: PostgresServer, url: str) -> None:
    """Migrating by steps that may be repeated: begun and broken off, it is finished by the next."""
    schema = read_options(urlsplit(url)).schema
    server.execute(f'CREATE SCHEMA "{schema}"')
    server.execute(f'CREATE TABLE "{schema}".consensus_keys (shard text PRIMARY KEY)')
    for _ in range(2):
        with contextlib.closing(opened(url, Stepwise())) as consensus:
            assert consensus.head("k") is None
    assert server.execute(f'SELECT version FROM "{schema}".mzsql_migrations') == [(1,)]


def test_readers_that_wait_ask_nothing(url: str, tmp_path: Path) -> None:
    """A wait and a listen of persist, through the client, send no statement while nothing is written, and hear at once of what is."""
    schema = pa.schema([("k", pa.int64())])
    rows = pa.table({"k": [1], "mz_time": [0], "mz_diff": [1]})
    with contextlib.closing(opened(url)) as consensus, contextlib.closing(opened(url)) as other:
        blob = open_blob(f"file:{tmp_path}/blob")
        reading, writing = PersistClient(blob, consensus), PersistClient(blob, other)
        shard = reading.new_shard_id()
        writer = writing.open_writer(shard, schema)
        readers = [reading.open_reader(shard, schema) for _ in range(2)]
        heard: list[object] = []
        threads = [
            threading.Thread(target=lambda: heard.append(readers[0].wait_for_upper(0, timeout=60))),
            threading.Thread(
                target=lambda: heard.append(next(readers[1].listen(0, timeout=60))[1])
            ),
        ]
        for thread in threads:
            thread.start()
        followers = consensus._followers
        until(lambda: followers._live and all(k.waiting == 2 for k in followers._keys.values()))
        until(lambda: all(k.synced == followers._generation for k in followers._keys.values()))
        before = sent()
        time.sleep(3.5)  # several of the slices that persist waits in
        assert sent() == before
        writer.compare_and_append(rows, expected_upper=0, new_upper=2)
        for thread in threads:
            thread.join()
        assert heard == [2, 2]
        reading.close()
        writing.close()
        blob.close()


def test_an_error_that_nobody_expects_ends_no_following(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is shown, followers look for entries themselves, and listening goes on once it can."""
    failing = threading.Event()

    def shows(status: str) -> bool:
        return PROCESS.wait_for(
            lambda all_: any((o.name, o.status) == ("postgres-listener", status) for o in all_),
            60.0,
        )

    with contextlib.closing(opened(url)) as consensus:
        connect = consensus._database.connect

        def breaks(end: float) -> object:
            if failing.is_set() and threading.current_thread().name == LISTENER:
                raise RuntimeError("planted")
            return connect(end)

        monkeypatch.setattr(consensus._database, "connect", breaks)
        failing.set()
        consensus.wait("k", 2**62, 0.01)
        assert shows("restarting")
        with contextlib.closing(opened(url)) as other:
            assert other.compare_and_set("k", None, Versioned(0, b""))
            assert consensus.wait("k", -1, 60.0)
            failing.clear()
            assert shows("running")
            listening(consensus, "k")
            assert other.compare_and_set("k", 0, Versioned(1, b""))
            assert consensus.wait("k", 0, 60.0)
    assert not any(one.name == "postgres-listener" for one in PROCESS.statuses())
