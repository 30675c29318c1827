"""Real processes on files and SQLite, killed, stopped, and without room on their disk: every acknowledged append is there once."""

from __future__ import annotations

import multiprocessing
import os
import random
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import process_workers as workers
import pytest
from process_workers import SCHEMA, open_client, row_count

from mzsql.persist import PersistClient
from mzsql.persist.deciding import known_keys

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["mzsql.persist", "duckdb", "pyarrow.parquet"])
PATIENCE = 90.0
_STARTED: list[Any] = []


@pytest.fixture(autouse=True)
def no_process_outlives_its_test() -> Iterator[None]:
    yield
    while _STARTED:
        process = _STARTED.pop()
        process.kill()
        process.join()


class Child:
    """One process, and what it has told."""

    def __init__(self, target: Callable[..., None], *args: object) -> None:
        self.pipe, theirs = CONTEXT.Pipe()
        self.process = CONTEXT.Process(target=target, args=(*args, theirs), daemon=True)
        self.process.start()
        _STARTED.append(self.process)
        theirs.close()
        self.told: list[tuple[str, Any]] = []
        self.ended = False

    def hear(self, timeout: float = 0.0) -> None:
        """Take in what it has told, all that there is; what a dead process has told is still there."""
        if self.ended:
            return
        while self.pipe.poll(timeout):
            timeout = 0.0
            try:
                message = self.pipe.recv()
            except (EOFError, ConnectionResetError):
                self.ended = True
                return
            assert message[0] != "error", message[1]
            self.told.append(message)

    def of(self, kind: str) -> list[Any]:
        return [what for told, what in self.told if told == kind]

    def await_(self, kind: str, count: int = 1) -> list[Any]:
        """Wait until it has told ``count`` messages of a kind."""
        end = time.monotonic() + PATIENCE
        while len(self.of(kind)) < count:
            assert time.monotonic() < end, f"no {count} messages {kind!r}: {self.told[-3:]}"
            assert not self.ended, f"ended without {count} messages {kind!r}: {self.told[-3:]}"
            self.hear(0.05)
        return self.of(kind)

    def kill(self) -> None:
        """SIGKILL, and what it had told by then."""
        self.process.kill()
        self.process.join(PATIENCE)
        while not self.ended:
            self.hear(PATIENCE)

    def signal(self, number: int) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, number)


class Fleet:
    """Processes of several kinds, each replaced when it is killed; and what all of them have told."""

    def __init__(self) -> None:
        self.makers: list[Callable[[str], Child]] = []
        self.running: list[Child] = []
        self.gone: list[Child] = []

    def add(self, maker: Callable[[str], Child]) -> None:
        self.makers.append(maker)
        self.running.append(maker(f"{len(self.makers)}.0"))

    def hear(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            pipes: list[Connection] = [c.pipe for c in self.running if not c.ended]
            wait(pipes, left)
            for child in self.running:
                child.hear()
                assert not child.ended, "a process ended by itself"

    def replace(self, number: int) -> None:
        self.running[number].kill()
        self.gone.append(self.running[number])
        self.running[number] = self.makers[number](f"{number + 1}.{len(self.gone)}")

    def end(self) -> None:
        for child in self.running:
            child.kill()
        self.gone += self.running
        self.running = []

    def told(self, kind: str) -> set[tuple[str, int]]:
        return {what for child in [*self.gone, *self.running] for what in child.of(kind)}


def contents(client: PersistClient, shard_id: str) -> Counter[tuple[str, int]]:
    """How many rows there are of each append; each at one time."""
    read = client.open_reader(shard_id)
    upper = read.fetch_upper()
    assert upper is not None
    updates = read.updates(0, upper) if read.since == 0 else read.snapshot_arrow(upper - 1)
    read.expire()
    times = updates.group_by(["name", "n"]).aggregate([("mz_time", "count_distinct")])
    assert set(times["mz_time_count_distinct"].to_pylist()) <= {1}
    return workers._heard(updates)


def check(
    found: Counter[tuple[str, int]],
    *,
    begun: set[tuple[str, int]],
    acknowledged: set[tuple[str, int]],
) -> None:
    """Whole or not at all; every acknowledged append once, every other one at most once."""
    halves = {key: rows for key, rows in found.items() if rows != row_count(*key)}
    assert not halves, "an append is there in part, or more than once"
    assert not acknowledged - found.keys(), "an acknowledged append is lost"
    assert not found.keys() - begun, "something was written by nobody"


def objects(client: PersistClient, shard_id: str) -> set[str]:
    return {key for key, _ in client.blob.list_keys_and_metadata(f"{shard_id}/")}


def named(client: PersistClient, shard_id: str) -> set[str]:
    state = client.inspect(shard_id)
    assert state is not None
    return known_keys(state) | set(state.rollups.values())


def check_tidy(client: PersistClient, shard_ids: list[str], *, killed: bool) -> None:
    """After maintenance nothing is left that nobody refers to but what killed processes uploaded; the finder removes that."""
    for shard_id in shard_ids:
        client.maintain(shard_id, full=True)
        client.maintain(shard_id)
        state = client.inspect(shard_id)
        assert state is not None
        assert named(client, shard_id) <= objects(client, shard_id)
        assert len(state.trace) <= 1
        if not killed:
            assert objects(client, shard_id) == named(client, shard_id)
    leaks = list(client.find_leaks(older_than_ms=0, delete=True))
    assert all(leak.deleted for leak in leaks)
    for shard_id in shard_ids:
        assert objects(client, shard_id) == named(client, shard_id)


def chaos(place: str, seconds: float, seed: int) -> dict[str, int]:
    """Eight writers and two maintainers, one of them killed ever so often, and a follower of each shard."""
    rng = random.Random(seed)
    with open_client(place) as client:
        log, definite = client.new_shard_id(), client.new_shard_id()
        for shard_id in (log, definite):
            client.open_writer(shard_id, SCHEMA)
        fleet = Fleet()
        for _ in range(5):
            fleet.add(lambda name: Child(workers.compare_and_appender, place, log, name))
        for _ in range(3):
            fleet.add(lambda name: Child(workers.definite_appender, place, definite, name))
        for _ in range(2):
            fleet.add(lambda name: Child(workers.maintainer, place, [log, definite], name))
        followers = {s: Child(workers.follower, place, s) for s in (log, definite)}
        for follower in followers.values():
            follower.await_("ack")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            fleet.hear(rng.uniform(0.02, 0.4))
            for follower in followers.values():
                follower.hear()
            fleet.replace(rng.randrange(len(fleet.running)))
        fleet.end()
        begun, acknowledged = fleet.told("begin"), fleet.told("ack")
        heard = _last(client, followers)
        for shard_id in (log, definite):
            assert heard[shard_id] == contents(client, shard_id)
        in_log = {key for key in begun if key[0] != "definite"} | {("last", 0)}
        check(
            heard[log],
            begun=in_log,
            acknowledged={key for key in acknowledged if key[0] != "definite"},
        )
        uppers = [n for name, n in acknowledged if name == "definite"]
        reached = max((n for name, n in heard[definite] if name == "definite"), default=-1) + 1
        assert max(uppers) <= reached
        expected = {("definite", n): row_count("definite", n) for n in range(reached)}
        assert heard[definite] == {**expected, ("last", 0): row_count("last", 0)}
        check_tidy(client, [log, definite], killed=True)
        for shard_id in (log, definite):
            assert contents(client, shard_id) == heard[shard_id]
        return {"kills": len(fleet.gone), "appends": len(heard[log]), "definite": reached}


def _last(
    client: PersistClient, followers: dict[str, Child]
) -> dict[str, dict[tuple[str, int], int]]:
    """Write a last append to each shard, and let the followers end with it; what they heard."""
    heard = {}
    for shard_id, follower in followers.items():
        write = client.open_writer(shard_id)
        upper = write.fetch_upper()
        assert upper is not None
        follower.pipe.send(upper + 1)
        last = workers.rows_of("last", 0, upper)
        write.compare_and_append(last, expected_upper=upper, new_upper=upper + 1)
        heard[shard_id] = follower.await_("heard")[0]
        follower.process.join(PATIENCE)
        assert follower.process.exitcode == 0
    return heard


@pytest.mark.long
def test_processes_killed_at_any_moment_lose_nothing_and_repeat_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    figures = chaos(str(tmp_path), 4.0, seed=1)
    record_property("figures", figures)
    assert figures["kills"] >= 6
    assert figures["appends"] > 12


@pytest.mark.soak
def test_processes_killed_for_a_minute_lose_nothing_and_repeat_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    figures = chaos(str(tmp_path), 70.0, seed=2)
    record_property("figures", figures)
    assert figures["kills"] >= 40
    assert figures["appends"] > 50


@pytest.mark.long
def test_four_writers_of_one_shard_share_it(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    place = str(tmp_path)
    with open_client(place) as client:
        shard_id = client.new_shard_id()
        client.open_writer(shard_id, SCHEMA)
        fleet = Fleet()
        for _ in range(4):
            fleet.add(lambda name: Child(workers.compare_and_appender, place, shard_id, name))
        for child in fleet.running:
            child.await_("ack")
        before = [len(child.of("ack")) for child in fleet.running]
        while len(fleet.told("ack")) < sum(before) + 400:
            fleet.hear(0.1)
        shares = [
            len(child.of("ack")) - was for child, was in zip(fleet.running, before, strict=True)
        ]
        fleet.end()
        record_property("shares", shares)
        assert min(shares) * 4 * 10 >= sum(shares), f"one starves: {shares}"
        check(
            contents(client, shard_id),
            begun=fleet.told("begin"),
            acknowledged=fleet.told("ack"),
        )
        check_tidy(client, [shard_id], killed=True)


def test_writers_that_end_by_themselves_leave_nothing_behind(tmp_path: Path) -> None:
    place = str(tmp_path)
    with open_client(place) as client:
        shard_id = client.new_shard_id()
        client.open_writer(shard_id, SCHEMA)
        names = [f"w{n}" for n in range(3)]
        children = [Child(workers.counted_appender, place, shard_id, n, 25) for n in names]
        for child in children:
            child.await_("ack", 25)
            child.process.join(PATIENCE)
            assert child.process.exitcode == 0
        found = contents(client, shard_id)
        assert found == {(name, n): row_count(name, n) for name in names for n in range(25)}
        check_tidy(client, [shard_id], killed=False)
        assert list(client.find_leaks(older_than_ms=0)) == []


def test_an_end_that_was_killed_half_way_is_brought_to_its_end(tmp_path: Path) -> None:
    place, rng = str(tmp_path), random.Random(3)
    with open_client(place) as client:
        shard_ids = [client.new_shard_id() for _ in range(12)]
        for shard_id in shard_ids:
            write = client.open_writer(shard_id, SCHEMA)
            for time_ in range(6):
                rows = workers.rows_of("definite", time_ * 15, time_)
                write.compare_and_append(rows, expected_upper=time_, new_upper=time_ + 1)
        for _ in range(8):
            child = Child(workers.finalizer, place, shard_ids)
            child.await_("ack")
            time.sleep(rng.uniform(0, 0.08))
            child.kill()
        child = Child(workers.finalizer, place, shard_ids)
        child.await_("ack", 1 + len(shard_ids))
        child.process.join(PATIENCE)
        for shard_id in shard_ids:
            state = client.inspect(shard_id)
            assert state is not None
            assert state.finalized
            assert objects(client, shard_id) == set()
            assert len(client.consensus.scan(shard_id, 0, 10)) == 1
            assert client.exists(shard_id)


@pytest.mark.long
def test_processes_stopped_beyond_their_leases_go_on_when_continued(tmp_path: Path) -> None:
    place = str(tmp_path)
    with open_client(place) as client:
        shard_id = client.new_shard_id()
        client.open_writer(shard_id, SCHEMA)
        writers = [
            Child(workers.short_lived_appender, place, shard_id, name, 300) for name in ("a", "b")
        ]
        writers[0].await_("ack", 2)
        reader = Child(workers.leased_reader, place, shard_id, 400)
        reader.await_("ack", 2)
        for _ in range(2):
            _stop((writers[1], reader), awake=writers[0])
            expired = reader.of("ack").count("expired")
            _until_expired(client, shard_id, writers[0])
            for child in (writers[1], reader):
                child.hear()
            acks = [len(child.of("ack")) for child in (writers[1], reader)]
            for child in (writers[1], reader):
                child.signal(signal.SIGCONT)
            for child, was in zip((writers[1], reader), acks, strict=True):
                child.await_("ack", was + 3)
            assert reader.of("ack").count("expired") > expired, "a lease that ran out is told"
        for child in (*writers, reader):
            child.kill()
        check(
            contents(client, shard_id),
            begun={key for child in writers for key in child.of("begin")},
            acknowledged={key for child in writers for key in child.of("ack")},
        )
        check_tidy(client, [shard_id], killed=True)


def _stop(children: tuple[Child, ...], *, awake: Child) -> None:
    """Stop processes, though not within a transaction of SQLite: nobody can get past the lock of a stopped process."""
    while True:
        for child in children:
            child.signal(signal.SIGSTOP)
        awake.hear()  # what it did before, so that the second act told from here on was begun after the stop
        acks, end = len(awake.of("ack")), time.monotonic() + 5
        while len(awake.of("ack")) < acks + 2 and time.monotonic() < end:
            awake.hear(0.05)
        if len(awake.of("ack")) >= acks + 2:
            return
        for child in children:
            child.hear()
        done = [len(child.of("ack")) for child in children]
        for child in children:
            child.signal(signal.SIGCONT)
        for child, was in zip(children, done, strict=True):
            child.await_("ack", was + 2)  # the transaction that was under way is over


def _until_expired(client: PersistClient, shard_id: str, awake: Child) -> None:
    """Wait until only the process that is awake has a lease: its own changes expire the others."""
    end = time.monotonic() + PATIENCE
    while True:
        state = client.inspect(shard_id)
        assert state is not None
        if not state.readers and len(state.writers) <= 1:
            return
        assert time.monotonic() < end
        awake.hear(0.05)


@pytest.mark.parametrize(
    ("rows", "limit", "what"),
    [(3000, 200_000, "file Blob.* File too large"), (3, 150_000, "sqlite.* cannot .*")],
    ids=["blob", "consensus"],
)
def test_a_full_disk_is_a_location_error_and_no_damage(
    tmp_path: Path, rows: int, limit: int, what: str
) -> None:
    place = str(tmp_path)
    with open_client(place) as client:
        shard_id = client.new_shard_id()
        client.open_writer(shard_id, SCHEMA)
        child = Child(workers.limited_appender, place, shard_id, rows, limit)
        child.process.join(PATIENCE)
        assert child.process.exitcode == 0
        child.kill()
        assert re.search(what, child.of("failure")[0])
        found = contents(client, shard_id)
        assert set(found.values()) == {rows}
        acknowledged = set(child.of("ack"))
        assert ("wide", 1000) in acknowledged
        assert acknowledged <= found.keys() <= set(child.of("begin"))
        check_tidy(client, [shard_id], killed=False)
