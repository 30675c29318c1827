"""Each kind of thread meets an error that nobody expects, from a store or a clock, and goes on: nothing hangs, all is shown."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client import REGISTRY
from threads_kit import HANG, Fault, Nothing, Place, append, restarts_of

from mzsql.catalog.objects import Table
from mzsql.compute import ComputeSettings
from mzsql.compute.protocol import CreateInstance, Ping
from mzsql.compute.replica.replica import Replica
from mzsql.location import Indeterminate, blob_around, consensus_around
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import PersistClient, Settings, SystemClock, background_work
from mzsql.repr.errors import NotReadable, SqlError, ThreadFailed
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import TEXT, ColumnType
from mzsql.storage import CollectionManager, ManagedKind
from mzsql.threads import Backoff, Supervisor

STATUS = GlobalId("s7")
COLUMNS = (ColumnType(TEXT),)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    opened = Place(tmp_path / "env")
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("name", "thread", "act"),
    [
        ("log-follower", "mzsql-follow-log", "INSERT INTO t VALUES ({})"),
        ("catalog-follower", "mzsql-follow-catalog", "CREATE TABLE t{} (a int)"),
        ("leader", "mzsql-leader", "CREATE TABLE t{} (a int)"),
    ],
)
def test_a_thread_of_the_environment_goes_on_after_an_error_that_nobody_expects(
    place: Place, name: str, thread: str, act: str
) -> None:
    moved = threading.Event()
    place.env.collections.watch(moved.set)
    before = restarts_of(name)
    place.fault.name = thread
    place.other.execute(act.format(1))
    place.wait(name, "restarting")
    ((status, error, _),) = place.shown(name)
    assert (status, error) == ("restarting", "internal error: RuntimeError: planted")
    # What waits on it does not: reads see what others do.
    place.other.execute("INSERT INTO t VALUES (7)")
    assert (7,) in place.run("SELECT a FROM t")
    moved.clear()
    place.fault.name = None
    place.wait(name, "running")
    place.other.execute("INSERT INTO t VALUES (8)")
    assert moved.wait(HANG)
    ((status, error, restarts),) = place.shown(name)
    assert (status, error) == ("running", None)
    assert restarts > 0
    assert restarts_of(name) >= before + float(restarts)


def test_a_follower_of_a_collection_goes_on(place: Place) -> None:
    gid = next(item.id for item in place.env.catalog.state.of(Table))
    end = place.env.collections.followers.follow(gid)
    place.wait("collection-follower", "running")
    place.fault.name = f"mzsql-follow-{gid}"
    place.other.execute("INSERT INTO t VALUES (1)")
    # The table's own shard moves when somebody applies the log to it.
    place.other.execute("SELECT * FROM t")
    place.wait("collection-follower", "restarting")
    assert not place.env.collections.followers.told(gid)
    place.fault.name = None
    place.wait("collection-follower", "running")
    end()


def test_a_commit_that_meets_a_bug_fails_its_session_and_no_other(place: Place) -> None:
    place.run("INSERT INTO t VALUES (1)")
    place.fault.name = "mzsql-group-commit"
    with pytest.raises(SqlError):
        place.run("INSERT INTO t VALUES (2)")
    place.wait("group-commit", "restarting")
    ((_, error, _),) = place.shown("group-commit")
    assert error == "internal error: RuntimeError: planted"
    place.fault.name = None
    place.run("INSERT INTO t VALUES (3)")
    place.wait("group-commit", "running")
    assert (3,) in place.run("SELECT a FROM t")


def test_a_commit_thread_that_has_ended_for_good_says_so_in_a_typed_error(place: Place) -> None:
    place.run("INSERT INTO t VALUES (1)")

    place.fault.error, place.fault.name = SystemExit("planted"), "mzsql-group-commit"
    with pytest.raises(SqlError, match="the group commit met SystemExit: planted"):
        place.coordinator.commits.commit({})  # it looks at the catalog first
    place.wait("group-commit", "failed")
    place.fault.name = None
    with pytest.raises(ThreadFailed, match="the group commit of this process has ended"):
        place.run("INSERT INTO t VALUES (2)")
    ((status, error, _),) = place.shown("group-commit")
    assert (status, error) == ("failed", "internal error: SystemExit: planted")
    # What needs no commit goes on.
    assert place.run("SELECT a FROM t") == [(1,)]


class Store:
    """A client with backends that fail as told, whose threads are begun anew at once."""

    def __init__(self, clock: SystemClock | None = None) -> None:
        self.fault = Fault()
        self.supervisor = Supervisor(backoff=Backoff(0.0, 0.01))
        self.blob, self.consensus = MemBlob(), MemConsensus()
        self.client = PersistClient(
            blob_around(self.blob, self.fault.around),
            consensus_around(self.consensus, self.fault.around),
            clock=clock,
            supervisor=self.supervisor,
        )

    def wait(self, name: str, status: str, *, restarts: int = 0) -> None:
        assert self.supervisor.wait_for(
            lambda all_: any(
                (one.name, one.status) == (name, status) and one.restarts >= restarts
                for one in all_
            ),
            HANG,
        ), self.supervisor.statuses()

    def rows(self, shard: str) -> list[tuple[str, int]]:
        reader = PersistClient(self.blob, self.consensus, background=False).open_reader(shard)
        upper = reader.fetch_upper()
        assert upper
        table = reader.snapshot_arrow(upper - 1)
        return sorted(zip(table["c0"].to_pylist(), table["mz_diff"].to_pylist(), strict=True))


@pytest.mark.parametrize("differential", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_a_status_writer_loses_and_repeats_nothing(differential: bool, after: bool) -> None:
    """Whether the store did what it failed in or not."""
    store = Store()
    manager, shard = CollectionManager(store.client), store.client.new_shard_id()
    manager.register(STATUS, shard, COLUMNS, kind=ManagedKind(differential), name="statuses")
    manager.append(STATUS, [(("a",), 1)])
    manager.flush(STATUS, HANG)
    store.fault.after, store.fault.name = after, "mzsql-statuses"
    manager.append(STATUS, [(("b",), 1)])
    store.wait("status-writer", "restarting", restarts=3)
    with pytest.raises(NotReadable) as late:
        manager.flush(STATUS, 0.0)
    assert "RuntimeError: planted" in str(late.value.detail)
    manager.append(STATUS, [(("c",), 1)])
    store.fault.name = None
    manager.flush(STATUS, HANG)
    assert store.rows(shard) == [("a", 1), ("b", 1), ("c", 1)]
    store.wait("status-writer", "running", restarts=3)
    store.fault.error, store.fault.name = SystemExit("planted"), "mzsql-statuses"
    manager.append(STATUS, [(("d",), 1)])
    store.wait("status-writer", "failed")
    with pytest.raises(ThreadFailed, match="the writer of statuses of this process has ended"):
        manager.flush(STATUS, HANG)
    manager.close()
    store.client.close()


def test_what_waits_for_a_status_writer_is_bounded() -> None:
    store = Store()
    manager = CollectionManager(store.client)
    mirror, history = (store.client.new_shard_id() for _ in range(2))
    manager.register(STATUS, mirror, COLUMNS, kind=ManagedKind(True), name="mirror")
    manager.register(GlobalId("s8"), history, COLUMNS, kind=ManagedKind(False), name="history")
    manager.flush(STATUS, HANG)
    bound = manager._collections[GlobalId("s8")]._most_waiting = 500
    store.fault.name = "mzsql-"
    manager.append(GlobalId("s8"), [(("first",), 1)])
    store.wait("status-writer", "restarting")
    for i in range(bound + 100):
        # A status that goes back and forth is one row.
        manager.append(STATUS, [((f"s{i % 2}",), 1), ((f"s{(i + 1) % 2}",), -1)])
        manager.append(GlobalId("s8"), [((f"h{i:06}",), 1)])
    manager.append(STATUS, [(("end",), 1)])
    assert len(manager._collections[STATUS]._mirror.groups[()]) <= 3
    dropped = manager._collections[GlobalId("s8")].dropped
    assert dropped >= 100
    assert REGISTRY.get_sample_value(
        "mzsql_storage_dropped_rows_total", {"collection": "history"}
    ) == float(dropped)
    store.fault.name = None
    manager.flush(STATUS, HANG)
    manager.flush(GlobalId("s8"), HANG)
    assert ("end", 1) in store.rows(mirror)
    kept = [name for name, _ in store.rows(history)]
    assert kept[-1] == f"h{bound + 99:06}"
    assert len(kept) == bound + 101 - dropped
    manager.close()
    store.client.close()


class Jumping(SystemClock):
    """The machine's clock, later by what the test says."""

    ahead = 0.0

    def now_ms(self) -> int:
        return super().now_ms() + int(self.ahead * 1000)

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def test_maintenance_and_the_keeping_of_leases_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_work, "_HEARTBEAT_CHECK_SECONDS", 0.01)
    clock = Jumping()
    store = Store(clock=clock)
    schema = pa.schema([("c0", pa.string())])
    shards = [store.client.open_shard(store.client.new_shard_id(), schema) for _ in range(2)]
    store.fault.name = "mzsql-persist-leases"
    clock.ahead += Settings().reader_lease_ms / 2000
    store.wait("leases", "restarting")
    store.fault.name = None
    store.wait("leases", "running", restarts=1)
    for writer, reader in shards:
        assert not reader.heartbeat_due()
        writer.fetch_upper()
    store.fault.name = "mzsql-persist-maintenance"
    for writer, _ in shards:
        append(writer, 40)
    store.wait("maintenance", "restarting")
    store.fault.name = None
    append(shards[0][0], 40)
    store.wait("maintenance", "running", restarts=1)
    store.client.close()
    assert not store.supervisor.statuses()


def test_a_buffered_writer_tells_an_error_that_nobody_expects_to_its_next_call() -> None:
    store = Store()
    schema = pa.schema([("c0", pa.string())])
    writer, _ = store.client.open_shard(store.client.new_shard_id(), schema)
    buffered = writer.buffered(flush_interval=0.0)
    store.fault.name, store.fault.error = "mzsql-persist-flush", SystemExit("planted")
    buffered.push(None, upper=5)
    store.wait("buffered-writer", "failed")
    with pytest.raises(ThreadFailed, match="SystemExit: planted"):
        buffered.push(None, upper=6)
    with pytest.raises((ThreadFailed, Indeterminate)):
        buffered.close()
    store.client.close()


def test_the_scheduler_of_a_replica_goes_on_and_says_when_it_does_not() -> None:
    class Clock(SystemClock):
        error: BaseException | None = None

        def monotonic(self) -> float:
            if self.error is not None:
                raise self.error
            return super().monotonic()

    store, clock, nothing = Store(), Clock(), Nothing()
    clock.error = RuntimeError("planted")
    replica = Replica(
        CreateInstance("r1", ComputeSettings(timeout=HANG, idle_seconds=0.01)),
        lambda _: None,
        persist=store.client,
        spark=lambda: pytest.fail("Spark is not needed"),
        storage=nothing,  # type: ignore[arg-type]
        registry=nothing,  # type: ignore[arg-type]
        clock=clock,
    )
    store.wait("scheduler", "restarting", restarts=2)
    clock.error = None
    store.wait("scheduler", "running", restarts=2)
    clock.error = SystemExit("planted")
    store.wait("scheduler", "failed")
    with pytest.raises(ThreadFailed, match="the scheduler of replica r1 of this process has ended"):
        replica.send(Ping(1))
    replica.close()
    store.client.close()
