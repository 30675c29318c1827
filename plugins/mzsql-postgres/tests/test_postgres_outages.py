"""Restarts, crashes and terminated connections, between calls and during them; and a server that goes silent."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from mzsql_postgres import PostgresConsensus, PostgresOracle, read_options
from postgres_server import PostgresServer

from mzsql.location import Determinate, Indeterminate, Versioned, waiting


@pytest.fixture(scope="module")
def own() -> Iterator[PostgresServer]:
    """A server that these tests may stop."""
    with PostgresServer(tcp=True) as server:
        yield server


def opened(url: str) -> tuple[PostgresConsensus, PostgresOracle]:
    options = read_options(urlsplit(url))
    return PostgresConsensus(options), PostgresOracle(options, "t", lambda: 0)


def backends(server: PostgresServer, application: str) -> list[int]:
    rows = server.execute(
        "SELECT pid FROM pg_stat_activity WHERE application_name = %s", application
    )
    return [pid for (pid,) in rows]


def _keep_appending(consensus: PostgresConsensus) -> None:
    for n in range(10**6):
        consensus.compare_and_set("k", n - 1 if n else None, Versioned(n, b""))


@pytest.mark.parametrize("immediate", [False, True])
@pytest.mark.parametrize("tcp", [False, True])
def test_restart_between_calls(
    own: PostgresServer, tmp_path: Path, immediate: bool, tcp: bool
) -> None:
    """Connections that died while nobody used them are found out before anything is sent: no call fails, none is in doubt."""
    url = (own.tcp_url if tcp else own.url)(schema=tmp_path.name)
    consensus, oracle = opened(url)
    assert consensus.compare_and_set("k", None, Versioned(0, b""))
    before = oracle.write_ts()
    own.restart(immediate=immediate)
    assert consensus.compare_and_set("k", 0, Versioned(1, b""))
    assert oracle.write_ts() == before + 1
    own.restart(immediate=immediate)
    assert consensus.truncate("k", 1) == 1
    assert consensus.head("k") == Versioned(1, b"")
    assert oracle.read_ts() == 0
    consensus.close()
    oracle.close()


def test_calls_wait_for_the_server(own: PostgresServer, tmp_path: Path) -> None:
    """Calls made while the server is down go through once it is up, a compare-and-set too: it was never sent."""
    consensus, oracle = opened(own.url(schema=tmp_path.name))
    assert consensus.compare_and_set("k", None, Versioned(0, b""))
    own.stop()
    done: list[object] = []
    threads = [
        threading.Thread(target=lambda c=call: done.append(c()))
        for call in (
            lambda: consensus.compare_and_set("k", 0, Versioned(1, b"")),
            oracle.write_ts,
            oracle.read_ts,
            lambda: consensus.wait("k", 0, 30.0),
        )
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    assert not done
    own.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, done)) == [0, 1, 1, 1]  # type: ignore[call-overload]
    consensus.close()
    oracle.close()


def test_down_for_longer_than_the_timeout(own: PostgresServer, tmp_path: Path) -> None:
    """Determinate, with the reason."""
    consensus, oracle = opened(own.url(schema=tmp_path.name, timeout=0.5))
    assert consensus.compare_and_set("k", None, Versioned(0, b""))
    own.stop()
    for call in (
        lambda: consensus.compare_and_set("k", 0, Versioned(1, b"")),
        lambda: consensus.head("k"),
        lambda: consensus.truncate("k", 0),
        oracle.write_ts,
    ):
        with pytest.raises(Determinate, match=r"No such file|refused|lost|closed"):
            call()
    own.start()
    assert consensus.compare_and_set("k", 0, Versioned(1, b""))
    consensus.close()
    oracle.close()


def test_terminated_under_load(own: PostgresServer, tmp_path: Path) -> None:
    """Connections terminated at random while threads work: what is known holds, what is in doubt is said to be, timestamps never repeat."""
    consensus, oracle = opened(own.url(schema=tmp_path.name, application_name="loaded"))
    done = threading.Event()
    allocated: list[list[int]] = [[], []]
    won: dict[int, bytes] = {}
    doubtful: set[bytes] = set()

    def allocate(mine: list[int]) -> None:
        while not done.is_set():
            mine.append(oracle.write_ts())
            oracle.apply_write(mine[-1])
            assert oracle.read_ts() >= mine[-1]

    def append(name: int) -> None:
        count = 0
        while not done.is_set():
            count += 1
            value = b"%d-%d" % (name, count)
            head = consensus.head("k")
            seqno = 0 if head is None else head.seqno + 1
            try:
                if consensus.compare_and_set(
                    "k", seqno - 1 if seqno else None, Versioned(seqno, value)
                ):
                    assert seqno not in won
                    won[seqno] = value
            except Indeterminate:
                doubtful.add(value)

    threads = [threading.Thread(target=allocate, args=(mine,)) for mine in allocated]
    threads += [threading.Thread(target=append, args=(name,)) for name in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(15):
        time.sleep(0.1)
        own.kill_backends("loaded")
    done.set()
    for thread in threads:
        thread.join()
    log = consensus.scan("k", 0, 10**6)
    assert [v.seqno for v in log] == list(range(len(log)))
    for seqno, value in won.items():
        assert log[seqno].data == value
    assert {v.data for v in log} - set(won.values()) <= doubtful
    every = [ts for mine in allocated for ts in mine]
    assert len(every) == len(set(every)) > 10
    assert all(mine == sorted(mine) for mine in allocated)
    consensus.close()
    oracle.close()


@pytest.mark.long
def test_silent_server(own: PostgresServer, tmp_path: Path) -> None:
    """A backend that is frozen under a statement: no call hangs; a read is determinate, a write in doubt, and other connections go on."""
    url = own.url(schema=tmp_path.name, application_name="frozen", timeout=0.5, statement_timeout=1)
    consensus, oracle = opened(url)
    for n in range(2):  # so that every statement is prepared, and no notification owed
        assert consensus.compare_and_set("k", n - 1 if n else None, Versioned(n, b""))
        assert consensus.head("k") == Versioned(n, b"")
    oracle.write_ts()
    frozen = backends(own, "frozen")
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(Indeterminate, match="did not answer in time"):
            consensus.compare_and_set("k", 1, Versioned(2, b""))
        # That connection is given up, and the next call has one of its own.
        head = consensus.head("k")
        assert head is not None
        with pytest.raises(Indeterminate, match="did not answer in time"):
            oracle.write_ts()
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    assert oracle.write_ts() > 0
    consensus.close()
    oracle.close()


def test_a_caller_that_waits_less_than_the_url_allows(own: PostgresServer, tmp_path: Path) -> None:
    """The limits of a URL that states none are 30 and 15 seconds; the caller has one."""
    url = own.url(schema=tmp_path.name, application_name="frozen")
    consensus, oracle = opened(url)
    for n in range(2):
        assert consensus.compare_and_set("k", n - 1 if n else None, Versioned(n, b""))
    oracle.write_ts()
    frozen = backends(own, "frozen")
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    acts = (lambda: consensus.compare_and_set("k", 1, Versioned(2, b"")), oracle.write_ts)
    try:
        for act in acts:
            began = time.monotonic()
            with (
                pytest.raises(Indeterminate),
                waiting(lambda end=began + 1: end - time.monotonic()),
            ):
                act()
            assert time.monotonic() - began < 14
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    assert oracle.write_ts() > 0
    consensus.close()
    oracle.close()


def test_lost_read_is_determinate(own: PostgresServer, tmp_path: Path) -> None:
    """A read whose answer never comes changed nothing."""
    url = own.url(schema=tmp_path.name, application_name="frozen", timeout=0.5, statement_timeout=1)
    consensus, oracle = opened(url)
    consensus.head("k")
    frozen = backends(own, "frozen")
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(Determinate, match="did not answer in time"):
            consensus.head("k")
    finally:
        for pid in frozen:
            os.kill(pid, signal.SIGCONT)
    consensus.close()
    oracle.close()


def test_read_only_server(own: PostgresServer, tmp_path: Path) -> None:
    """A server that takes no writes, as a standby, is refused with what to do."""
    consensus, oracle = opened(own.url(schema=tmp_path.name, timeout=0.5))
    own.execute("ALTER SYSTEM SET default_transaction_read_only = on")
    own.execute("SELECT pg_reload_conf()")
    try:
        while own.execute("SHOW default_transaction_read_only") == [("off",)]:
            time.sleep(0.01)
        with pytest.raises(Determinate, match="read-only") as caught:
            _keep_appending(consensus)
        assert "standby" in (caught.value.hint or "")
        with pytest.raises(Determinate, match="read-only"):
            opened(own.url(schema=tmp_path.name, timeout=0.5))
    finally:
        with contextlib.closing(own.connect()) as connection:
            connection.execute("SET default_transaction_read_only = off")
            connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
            connection.execute("SELECT pg_reload_conf()")
        while own.execute("SHOW default_transaction_read_only") == [("on",)]:
            time.sleep(0.01)
    consensus.close()
    oracle.close()


def test_follower_survives_a_restart(own: PostgresServer, tmp_path: Path) -> None:
    """A wait that is under way when the server goes ends with the entry that comes after."""
    url = own.url(schema=tmp_path.name)
    consensus, oracle = opened(url)
    other, another = opened(url)
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(consensus.wait("k", -1, 60.0)))
    thread.start()
    while not consensus._followers._live:
        time.sleep(0.01)
    own.restart(immediate=True)
    assert other.compare_and_set("k", None, Versioned(0, b""))
    thread.join()
    assert woken == [True]
    for handle in (consensus, oracle, other, another):
        handle.close()
