"""Consensus on PostgreSQL beyond the kit: races between processes, truncation against compare-and-set, bounded reading, forks."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import threading
import time
from urllib.parse import urlsplit

import psycopg
import pytest
from mzsql_postgres import PostgresConsensus, read_options, sessions
from mzsql_postgres.dialects import ConsensusStatements, Dialect, GuardedPostgres, Postgres
from mzsql_postgres.sessions import STATEMENTS, from_int8, int8
from postgres_server import PostgresServer

from mzsql.location import Determinate, UsageError, Versioned, open_consensus, open_oracle

DIALECTS = [Postgres(), GuardedPostgres()]


def opened(url: str, dialect: Dialect | None = None) -> PostgresConsensus:
    return PostgresConsensus(read_options(urlsplit(url)), dialect)


def _race(url: str, guarded: bool, name: int, entries: int) -> list[int]:
    """In a process of its own: append until the log is long enough, truncating now and then; what it won."""
    won = []
    with contextlib.closing(opened(url, GuardedPostgres() if guarded else None)) as consensus:
        while True:
            head = consensus.head("k")
            if head is not None and head.seqno >= entries - 1:
                return won
            expected = None if head is None else head.seqno
            seqno = 0 if expected is None else expected + 1
            if consensus.compare_and_set("k", expected, Versioned(seqno, b"%d" % name)):
                won.append(seqno)
            if seqno % 7 == name:
                consensus.truncate("k", max(0, seqno - 1))


@pytest.mark.parametrize("guarded", [False, pytest.param(True, marks=pytest.mark.long)])
def test_race_of_processes(url: str, guarded: bool) -> None:
    """Each entry is won exactly once, under truncation too."""
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        won = pool.starmap(_race, [(url, guarded, name, 200) for name in range(4)])
    assert sorted(seqno for each in won for seqno in each) == list(range(200))
    with contextlib.closing(opened(url)) as consensus:
        left = consensus.scan("k", 0, 1000)
        assert [v.seqno for v in left] == list(range(left[0].seqno, 200))
        assert all(v.seqno in won[int(v.data)] for v in left)


@pytest.mark.parametrize("dialect", DIALECTS, ids=["postgres", "guarded"])
def test_truncated_key_cannot_begin_anew(
    server: PostgresServer, url: str, dialect: Dialect
) -> None:
    """A first entry whose statement began before the key was there, and gets to insert after others have truncated theirs away."""
    with contextlib.closing(opened(url, dialect)) as consensus:
        schema = read_options(urlsplit(url)).schema
        text = ConsensusStatements(dialect, schema).first_entry.text.decode()
        with server.connect() as late, server.connect() as other:
            # A lock holds the late statement up after its snapshot was taken: on the row of the key, inserted and not committed.
            other.execute("BEGIN")
            other.execute(f"INSERT INTO \"{schema}\".consensus_keys VALUES ('k')")
            answer: list[int] = []
            typed = text.replace("$1", "'k'").replace("$2", "0").replace("$3", "'late'::bytea")
            thread = threading.Thread(target=lambda: answer.append(late.execute(typed).rowcount))
            thread.start()
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while server.execute(waiting) == [(0,)]:
                time.sleep(0.01)
            insert = f"INSERT INTO \"{schema}\".consensus SELECT 'k', n, '' FROM generate_series(2, 4) AS n"
            other.execute(insert)
            other.execute("COMMIT")
            thread.join()
            assert answer == [0]
        assert not consensus.compare_and_set("k", None, Versioned(0, b""))
        assert [v.seqno for v in consensus.scan("k", 0, 9)] == [2, 3, 4]


def test_compare_and_set_far_behind_a_truncation(server: PostgresServer, url: str) -> None:
    """The expected entry is being removed by a truncation not yet committed: whichever way that ends, the entry after it is not written."""
    with contextlib.closing(opened(url)) as consensus:
        for n in range(6):
            assert consensus.compare_and_set("k", n - 1 if n else None, Versioned(n, b""))
        schema = read_options(urlsplit(url)).schema
        for end in ("ROLLBACK", "COMMIT"):
            with server.connect() as truncating:
                truncating.execute("BEGIN")
                truncating.execute(
                    f"DELETE FROM \"{schema}\".consensus WHERE sequence_number < 5 AND shard = 'k'"
                )
                answer: list[bool] = []
                thread = threading.Thread(
                    target=lambda answer=answer: answer.append(
                        consensus.compare_and_set("k", 2, Versioned(3, b"stale"))
                    )
                )
                thread.start()
                thread.join(0.3)
                assert thread.is_alive()
                truncating.execute(end)
                thread.join()
                assert answer == [False]
        assert [v.seqno for v in consensus.scan("k", 0, 9)] == [5]


def test_lock_that_is_held_for_long(server: PostgresServer, url: str) -> None:
    """A compare-and-set that gets no lock in time gives up, determinately."""
    with contextlib.closing(opened(f"{url}&lock_timeout=0.1&timeout=0.5")) as consensus:
        assert consensus.compare_and_set("k", None, Versioned(0, b""))
        schema = read_options(urlsplit(url)).schema
        with server.connect() as other:
            other.execute("BEGIN")
            other.execute(f'SELECT * FROM "{schema}".consensus FOR UPDATE')
            with pytest.raises(Determinate, match="lock timeout") as caught:
                consensus.compare_and_set("k", 0, Versioned(1, b""))
        assert "pg_locks" in (caught.value.hint or "")
        assert consensus.compare_and_set("k", 0, Versioned(1, b""))


@pytest.mark.long
def test_long_log_is_read_in_part(server: PostgresServer, url: str) -> None:
    """Of a million entries a scan reads as many as it may, by the index."""
    with contextlib.closing(opened(url)) as consensus:
        assert consensus.compare_and_set("k", None, Versioned(0, b""))
        schema = read_options(urlsplit(url)).schema
        server.execute(
            f"INSERT INTO \"{schema}\".consensus SELECT 'k', n, '' FROM generate_series(1, 999999) AS n"
        )
        assert [v.seqno for v in consensus.scan("k", 500_000, 3)] == [500_000, 500_001, 500_002]
        head = consensus.head("k")
        assert head is not None
        assert head.seqno == 999_999
        statements = ConsensusStatements(Postgres(), schema)
        for statement, values in (
            (statements.scan, ["'k'", "500000", "3"]),
            (statements.head, ["'k'"]),
        ):
            text = statement.text.decode()
            for number, value in enumerate(values):
                text = text.replace(f"${number + 1}", value)
            plan = server.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}")[0][0][0][
                "Plan"
            ]
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 20
        assert consensus.compare_and_set("k", 999_999, Versioned(1_000_000, b"end"))


def test_keys_come_in_pages(server: PostgresServer, url: str) -> None:
    """Listing fetches as it goes: many keys are never held at once."""
    with contextlib.closing(opened(url)) as consensus:
        schema = read_options(urlsplit(url)).schema
        server.execute(
            f"INSERT INTO \"{schema}\".consensus_keys SELECT 'k' || n FROM generate_series(1, 2500) AS n"
        )
        counted = STATEMENTS.labels("list_keys")._value
        before = counted.get()
        keys = consensus.list_keys()
        assert counted.get() == before
        found = [next(keys)]
        assert counted.get() - before <= 2  # one to prepare, one to run
        found.extend(keys)
        assert sorted(found) == sorted(f"k{n}" for n in range(1, 2501))


@pytest.mark.parametrize("key", ["nul\0", "\ud800"])
def test_keys_that_are_no_text(url: str, key: str) -> None:
    """PostgreSQL cannot hold them: refused, not mangled."""
    with contextlib.closing(opened(url)) as consensus:
        with pytest.raises(UsageError):
            consensus.compare_and_set(key, None, Versioned(0, b""))
        with pytest.raises(UsageError):
            consensus.wait(key, 0, 0.0)
    with pytest.raises(UsageError):
        open_oracle(url, key, lambda: 0)


def test_pool_exhausted(server: PostgresServer, url: str) -> None:
    """Who gets no connection in time is told so, and what to do."""
    with contextlib.closing(opened(f"{url}&pool_max_size=1&pool_timeout=0.2")) as consensus:
        assert consensus.compare_and_set("k", None, Versioned(0, b""))
        schema = read_options(urlsplit(url)).schema
        with server.connect() as other:
            other.execute("BEGIN")
            other.execute(f'LOCK TABLE "{schema}".consensus')
            thread = threading.Thread(target=consensus.head, args=("k",))
            thread.start()
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            while server.execute(waiting) == [(0,)]:
                time.sleep(0.01)
            with pytest.raises(Determinate, match="all 1 connections were in use") as caught:
                consensus.head("k")
            assert "pool_max_size" in (caught.value.hint or "")
            other.execute("COMMIT")
            thread.join()
        assert consensus.head("k") == Versioned(0, b"")


def test_too_many_connections() -> None:
    """The server's own bound is an error that says so; once there is room again calls go through."""
    with PostgresServer(max_connections=6, superuser_reserved_connections=1) as server:
        server.execute("CREATE ROLE few LOGIN SUPERUSER")
        server.execute("ALTER SYSTEM SET superuser_reserved_connections = 0")
        url = server.url(schema="few", timeout=0.5)
        with contextlib.ExitStack() as others:
            taken = 0
            while taken < 6:  # those that were closed just now may still be there
                with contextlib.suppress(psycopg.OperationalError):
                    others.enter_context(server.connect())
                    taken += 1
            with pytest.raises(Determinate, match=r"too many|slots") as caught:
                open_consensus(url)
            assert "max_connections" in (caught.value.hint or "")
        open_consensus(server.url(schema="few")).close()


def test_prepared_once_and_one_statement_each(url: str) -> None:
    """After the first, a call is one statement; a compare-and-set one more, which tells followers."""
    with contextlib.closing(opened(url)) as consensus:
        for n in range(2):
            consensus.compare_and_set("k", n - 1 if n else None, Versioned(n, b""))
        consensus.head("k")

        def sent(operation: str) -> float:
            return STATEMENTS.labels(operation)._value.get()

        before = [sent(o) for o in ("compare_and_set", "notify", "head")]
        assert consensus.compare_and_set("k", 1, Versioned(2, b""))
        assert not consensus.compare_and_set("k", 1, Versioned(2, b""))
        consensus.head("k")
        after = [sent(o) for o in ("compare_and_set", "notify", "head")]
        assert [b - a for a, b in zip(before, after, strict=True)] == [2, 1, 1]


def backends(server: str) -> list[int]:
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'forked'"
    with psycopg.connect(server, autocommit=True) as connection:
        return [pid for (pid,) in connection.execute(query)]


def forks(server: str, url: str, waits: bool) -> None:
    """In a process of its own: parent and child use one handle."""
    consensus = opened(f"{url}&application_name=forked")
    assert consensus.compare_and_set("k", None, Versioned(0, b"parent"))
    before = set(backends(server))
    if waits:
        while len(backends(server)) < 2:
            assert not consensus.wait("k", 0, 0.05)
    context = multiprocessing.get_context("fork")

    def child() -> None:
        # Nor does the child say good-bye for its parent when it collects what it was born with.
        sessions._abandoned.clear()
        gc.collect()
        ok = consensus.compare_and_set("k", 0, Versioned(1, b"child")) and consensus.wait("k", 0, 9)
        consensus.close()
        os._exit(0 if ok else 1)

    process = context.Process(target=child)
    process.start()
    assert consensus.wait("k", 0, 20.0)
    process.join()
    assert process.exitcode == 0
    assert consensus.head("k") == Versioned(1, b"child")
    assert before <= set(backends(server))
    assert consensus.compare_and_set("k", 1, Versioned(2, b"parent"))
    consensus.close()


@pytest.mark.parametrize("waits", [False, True])
def test_fork(server: PostgresServer, url: str, waits: bool) -> None:
    """Parent and child go on with connections of their own, also where a thread of the parent waits.

    The parent is a process made for it: a child that collects what a run of tests left behind
    would wait for threads of other libraries, which no fork takes along.
    """
    process = multiprocessing.get_context("spawn").Process(
        target=forks, args=(server.url(), url, waits)
    )
    process.start()
    process.join(120.0)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode == 0


def test_close(url: str) -> None:
    """Threads are joined, waits ended, connections closed; twice is once; and then nothing works."""
    before = set(threading.enumerate())
    consensus = opened(url)
    waiting = threading.Thread(target=consensus.wait, args=("k", 0, 60.0))
    waiting.start()

    def listeners() -> list[threading.Thread]:
        ours = set(threading.enumerate()) - before
        return [one for one in ours if one.name == "mzsql-postgres-listener"]

    while not listeners():
        time.sleep(0.01)
    consensus.close()
    waiting.join(50.0)
    assert not waiting.is_alive()
    assert not listeners()
    consensus.close()
    with pytest.raises(Determinate, match="closed"):
        consensus.head("k")


def test_int8() -> None:
    """The extremes of bigint."""
    for value in (0, -1, 2**63 - 1, -(2**63)):
        assert from_int8(int8(value)) == value
