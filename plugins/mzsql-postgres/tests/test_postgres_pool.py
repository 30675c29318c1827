"""The pool of a handle: interrupts at any moment, closing under use, forks, and none of it taking room away or mixing answers up."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from urllib.parse import urlsplit

import pytest
from mzsql_postgres import PostgresConsensus, PostgresOracle, read_options
from postgres_server import PostgresServer

from mzsql.location import Determinate, Versioned


class Interrupted(BaseException):
    """What a person's Ctrl-C is."""


def opened(url: str) -> PostgresConsensus:
    return PostgresConsensus(read_options(urlsplit(url)))


@pytest.fixture
def timer() -> Iterator[None]:
    """SIGALRM raises `Interrupted` wherever the main thread is."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, ring)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("timer")
def test_interrupted_anywhere(server: PostgresServer, url: str) -> None:
    """Interrupts at random moments of calls: each later answer is that of its own call, and the pool keeps its room."""
    rng = random.Random(7)
    options = f"{url}&pool_max_size=2&pool_timeout=5&application_name=interrupted"
    interrupts = 0
    with contextlib.closing(opened(options)) as consensus:
        assert consensus.compare_and_set("k", None, Versioned(0, b"0"))
        assert consensus.compare_and_set("other", None, Versioned(0, b"other"))
        newest = 0
        for _ in range(120):
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 6e-4))
                for _ in range(3):
                    assert consensus.head("other") == Versioned(0, b"other")
                    new = Versioned(newest + 1, b"%d" % (newest + 1))
                    assert consensus.compare_and_set("k", newest, new)
                    newest += 1
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            except Interrupted:
                interrupts += 1
            head = consensus.head("k")
            assert head is not None
            assert head.data == b"%d" % head.seqno
            assert head.seqno in (newest, newest + 1)
            newest = head.seqno
            assert consensus.head("nobody's") is None
        assert interrupts > 30
        # As many at the same time as the pool may have.
        first, second = (consensus._database.take(float("inf")) for _ in range(2))
        consensus._database.give_back(first)
        consensus._database.give_back(second)
        gc.collect()
        count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'interrupted' AND state <> 'idle'"
        end = time.monotonic() + 60.0
        while server.execute(count) != [(0,)]:  # the server may not have seen the last one go
            assert time.monotonic() < end
            time.sleep(0.01)


def test_closed_under_use(url: str) -> None:
    """Threads in the middle of calls end with an answer or are told that the handle is closed; all connections are closed."""
    for _ in range(5):
        consensus = opened(f"{url}&pool_max_size=2")
        ends: list[object] = []
        begun = threading.Barrier(5)

        def work(
            consensus: PostgresConsensus = consensus,
            ends: list[object] = ends,
            begun: threading.Barrier = begun,
        ) -> None:
            begun.wait()
            try:
                while True:
                    assert consensus.head("k") is None
            except Determinate as failure:
                ends.append(failure.message)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        begun.wait()
        consensus.close()
        for thread in threads:
            thread.join(60.0)
            assert not thread.is_alive()
        assert len(ends) == 4
        assert all("the handle is closed" in str(end) for end in ends)
        assert len(consensus._database._members) == 0


def test_more_threads_than_connections(server: PostgresServer, url: str) -> None:
    """Threads take turns at the connections there are, and each gets its own answers."""
    with contextlib.closing(opened(f"{url}&pool_max_size=3&application_name=crowded")) as consensus:
        wrong: list[object] = []

        def work(name: int) -> None:
            key = f"k{name}"
            for n in range(20):
                entry = Versioned(n, b"%d-%d" % (name, n))
                if not consensus.compare_and_set(key, n - 1 if n else None, entry):
                    wrong.append(entry)
                if consensus.head(key) != entry:
                    wrong.append(entry)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'crowded'"
        assert server.execute(count)[0][0] <= 3


def test_fork_after_a_failed_opening(server: PostgresServer, url: str) -> None:
    """Handles that could not be opened, and are still in an exception's hands, do not keep the child of a fork from its own connections."""
    failures = []
    for _ in range(20):
        with pytest.raises(Determinate) as caught:
            opened(server.url().replace("postgres@", "nobody@"))
        failures.append(caught)
    handles = [opened(f"{url}&application_name=before-fork") for _ in range(5)]
    oracle = PostgresOracle(read_options(urlsplit(url)), "t", lambda: 0)
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'before-fork'"
    before = set(server.execute(query))
    assert len(before) == 5
    child = os.fork()
    if not child:
        try:
            ok = all(handle.head("k") is None for handle in handles)
            ok = ok and oracle.write_ts() == 1
            for handle in handles:
                handle.close()
            oracle.close()
            os._exit(0 if ok else 1)
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert before <= set(server.execute(query))
    for handle in handles:
        assert handle.head("k") is None
        handle.close()
    assert oracle.write_ts() == 2
    oracle.close()
    assert len(failures) == 20


def forks_while_lent(url: str) -> None:
    """In a process of its own: a child of it does what it may with a connection that is lent."""
    with contextlib.closing(opened(f"{url}&application_name=lent")) as consensus:
        session = consensus._database.take(float("inf"))
        child = os.fork()
        if not child:
            try:
                ok = session.closed
                session.close()
                consensus._database.give_back(session)
                ok = ok and consensus.head("k") is None
                consensus.close()
                del session
                gc.collect()
                os._exit(0 if ok else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert session.script("SELECT 1").rows == [(b"1",)]
        consensus._database.give_back(session)


def test_fork_while_lent(url: str) -> None:
    """A connection that another thread has lent stays the parent's alone, whatever the child does with what it was born with.

    The parent is a process made for it, whose garbage no thread of another library waits in.
    """
    process = multiprocessing.get_context("spawn").Process(target=forks_while_lent, args=(url,))
    process.start()
    process.join(120.0)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode == 0
