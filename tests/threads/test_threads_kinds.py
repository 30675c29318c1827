"""Every kind of supervised thread: an error that nobody expects, once it has done its work, ends none of them.

Each is begun anew, is shown so in ``mz_internal.mz_threads`` and by the metric meanwhile, and goes on with its work. A kind that is new
needs a case here.
"""

from __future__ import annotations

import ast
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from threads_kit import HANG, Nothing, Place, append, restarts_of

from mzsql.adapter.dataflows.metrics_history import MetricsHistory
from mzsql.adapter.environment.status_collections import register_managed
from mzsql.catalog.objects import Table
from mzsql.compute import ComputeSettings
from mzsql.compute.engines.jobs import JobCount, cancelled_when
from mzsql.compute.protocol import CreateInstance, Ping, Pong
from mzsql.compute.replica.hydration.hydration import _Watch
from mzsql.compute.replica.replica import Replica
from mzsql.compute.transport.usage import Usage
from mzsql.persist import Batch, background_work
from mzsql.repr.ids import GlobalId
from mzsql.repr.types import INTEGER, TEXT, ColumnType
from mzsql.storage import CollectionManager, ManagedKind, Tables, WriteAheadLog, as_updates
from mzsql.storage.export_log import ExportLog
from mzsql.threads import PROCESS, Deadlines, Supervised, Supervisor

ROOT = Path(__file__).parents[2]
SCHEMA = pa.schema([("c0", pa.string())])


class Case(msgspec.Struct):
    """A thread of one kind that runs.

    Attributes:
        stir: has it do a round of its work.
        works: as `stir`; raises where the work is not done.
        supervisor: whose it is, other than the environment's.
    """

    stir: Callable[[], object]
    works: Callable[[], object]
    supervisor: Supervisor | None = None


def _until(true: Callable[[], object]) -> None:
    end = time.monotonic() + HANG
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


def _count(place: Place) -> int:
    ((found,),) = place.run("SELECT count(*) FROM t")
    return int(found)


@contextmanager
def _log_follower(place: Place) -> Iterator[Case]:
    moved = threading.Event()
    end = place.env.collections.watch(moved.set)

    def works() -> None:
        moved.clear()
        place.other.execute("INSERT INTO t VALUES (1)")
        assert moved.wait(HANG)

    yield Case(lambda: place.other.execute("INSERT INTO t VALUES (1)"), works)
    end()


@contextmanager
def _catalog_follower(place: Place) -> Iterator[Case]:
    def stir() -> None:
        place.other.execute("CREATE TABLE u (a int); DROP TABLE u")

    def works() -> None:
        place.other.execute("CREATE TABLE heard (a int)")
        items = place.env.catalog
        _until(lambda: any(item.name == "heard" for item in items.state.items.values()))

    yield Case(stir, works)


@contextmanager
def _leader(place: Place) -> Iterator[Case]:
    follower = _catalog_follower(place)
    with follower as case:
        yield case


@contextmanager
def _collection_follower(place: Place) -> Iterator[Case]:
    gid = next(item.id for item in place.env.catalog.state.of(Table))
    followers = place.env.collections.followers

    def stir() -> None:
        # The table's own shard moves when somebody applies the log to it.
        place.other.execute("INSERT INTO t VALUES (1); SELECT * FROM t")

    end = followers.follow(gid)
    yield Case(stir, lambda: _until(lambda: followers.told(gid)))
    end()


@contextmanager
def _group_commit(place: Place) -> Iterator[Case]:
    def works() -> None:
        before = _count(place)
        place.run("INSERT INTO t VALUES (1)")
        assert _count(place) == before + 1

    yield Case(lambda: place.run("INSERT INTO t VALUES (1)"), works)


@contextmanager
def _status_writer(place: Place) -> Iterator[Case]:
    manager, status = CollectionManager(place.env.persist), GlobalId("s7")
    shard = place.env.persist.new_shard_id()
    manager.register(status, shard, (ColumnType(TEXT),), kind=ManagedKind(False), name="statuses")

    def works() -> None:
        manager.append(status, [(("b",), 1)])
        manager.flush(status, HANG)
        reader = place.env.persist.open_reader(shard)
        upper = reader.fetch_upper()
        assert upper
        assert sorted(reader.snapshot_arrow(upper - 1)["c0"].to_pylist()) == ["a", "b"]

    yield Case(lambda: manager.append(status, [(("a",), 1)]), works)
    manager.close()


@contextmanager
def _replica_metrics(place: Place) -> Iterator[Case]:
    register_managed(place.env)
    place.run("ALTER SYSTEM SET replica_metrics_history_interval = '1 ms'")
    history = MetricsHistory(place.env, lambda _: Usage(1, 2, 3, 4))
    history.begin()

    def stir() -> None:
        before = history._periodic._collected

        def collected() -> bool:
            history.look(place.env.catalog.state)
            return history._periodic._collected != before

        _until(collected)

    def works() -> None:
        ((before,),) = place.run(
            "SELECT count(*) FROM mz_internal.mz_cluster_replica_metrics_history"
        )

        def more() -> bool:
            stir()
            ((now,),) = place.run(
                "SELECT count(*) FROM mz_internal.mz_cluster_replica_metrics_history WHERE disk_bytes = 3"
            )
            return now > before

        _until(more)

    yield Case(stir, works)
    history.close()


@contextmanager
def _leases(_: Place) -> Iterator[Case]:
    yield Case(lambda: None, lambda: None)


@contextmanager
def _maintenance(place: Place) -> Iterator[Case]:
    persist = place.env.persist
    writer = persist.open_writer(persist.new_shard_id(), SCHEMA)

    def works() -> None:
        append(writer, 40)

        def few() -> bool:
            state = persist.inspect(writer.shard_id)
            assert state is not None
            return len(state.trace) <= 10

        _until(few)

    yield Case(lambda: append(writer, 40), works)


@contextmanager
def _buffered_writer(place: Place) -> Iterator[Case]:
    persist = place.env.persist
    writer = persist.open_writer(persist.new_shard_id(), SCHEMA)
    buffered = writer.buffered(flush_interval=0.0)

    def works() -> None:
        buffered.push(None, upper=9)
        _until(lambda: buffered.durable_upper == 9)

    yield Case(lambda: buffered.push(None, upper=5), works)
    buffered.close()


@contextmanager
def _export_log(place: Place) -> Iterator[Case]:
    persist = place.env.persist
    writer = persist.open_writer(persist.new_shard_id(), SCHEMA)
    log = ExportLog(persist, persist.new_shard_id(), quiet=0.0)
    times = itertools.count()

    def stir() -> None:
        lower = next(times)
        log.add(Batch(writer.shard_id, lower, lower + 1))

    def works() -> None:
        upper = log.follow().upper
        stir()
        _until(lambda: log.follow().upper > upper)

    log.begin()
    stir()
    yield Case(stir, works)
    log.close()


@contextmanager
def _tables_follow(place: Place) -> Iterator[Case]:
    persist = place.env.persist
    log = WriteAheadLog(persist, persist.new_shard_id())
    tables = Tables(persist, log, delay=0.0)
    shard = tables.open(persist.new_shard_id(), (ColumnType(INTEGER),))
    rows = as_updates(pa.table({"c0": pa.array([1], pa.int32())}))
    times = itertools.count(1)

    def stir() -> None:
        ts = next(times)
        log.commit(
            ts,
            {shard.shard_id: shard.batch(rows)},
            expected=log.follow(),
            register=[shard.shard_id],
        )
        tables.ensure_known(shard)

    def works() -> None:
        stir()
        _until(lambda: not shard.is_behind)

    yield Case(stir, works)
    tables.close()
    log.close()


@contextmanager
def _replica(place: Place, respond: Callable[[Any], None] = lambda _: None) -> Iterator[Replica]:
    nothing = Nothing()
    settings = ComputeSettings(
        timeout=HANG, idle_seconds=0.01, step_threads=1, hydration_concurrency=1
    )
    made = Replica(
        CreateInstance("r1", settings),
        respond,
        persist=place.env.persist,
        spark=lambda: pytest.fail("Spark is not needed"),
        storage=nothing,  # type: ignore[arg-type]
        registry=nothing,  # type: ignore[arg-type]
    )
    yield made
    made.close()


@contextmanager
def _commands(place: Place) -> Iterator[Case]:
    answered: set[int] = set()

    def respond(response: Any) -> None:
        assert isinstance(response, Pong)
        answered.add(response.nonce)

    with _replica(place, respond) as replica:

        def works() -> None:
            replica.send(Ping(2))
            _until(lambda: 2 in answered)

        yield Case(lambda: replica.send(Ping(1)), works)


@contextmanager
def _scheduler(place: Place) -> Iterator[Case]:
    with _replica(place):
        yield Case(lambda: None, lambda: None)


@contextmanager
def _worker(place: Place, lane: str) -> Iterator[Case]:
    with _replica(place) as replica:
        jobs = getattr(replica._work, lane)

        def works() -> None:
            done = threading.Event()
            jobs.put(done.set)
            assert done.wait(HANG)

        yield Case(works, works)


@contextmanager
def _step_worker(place: Place) -> Iterator[Case]:
    with _worker(place, "steps") as case:
        yield case


@contextmanager
def _first_worker(place: Place) -> Iterator[Case]:
    with _worker(place, "firsts") as case:
        yield case


@contextmanager
def _hydrate_worker(place: Place) -> Iterator[Case]:
    with _worker(place, "hydrations") as case:
        yield case


@contextmanager
def _sort_worker(place: Place) -> Iterator[Case]:
    with _worker(place, "sorts") as case:
        yield case


@contextmanager
def _warm_worker(place: Place) -> Iterator[Case]:
    with _worker(place, "warmings") as case:
        yield case


@contextmanager
def _open_worker(place: Place) -> Iterator[Case]:
    with _worker(place, "openings") as case:
        yield case


@contextmanager
def _flush_worker(place: Place) -> Iterator[Case]:
    with _worker(place, "flushes") as case:
        yield case


@contextmanager
def _statement_timeouts(_: Place) -> Iterator[Case]:
    deadlines = Deadlines()

    def works() -> None:
        called = threading.Event()
        deadlines.add(time.monotonic(), called.set)
        assert called.wait(HANG)

    yield Case(lambda: deadlines.add(time.monotonic(), lambda: None), works, PROCESS)
    deadlines.close()


@contextmanager
def _unwanted_jobs(_: Place) -> Iterator[Case]:
    unwanted, cancelled = threading.Event(), threading.Event()

    def works() -> None:
        unwanted.set()
        assert cancelled.wait(HANG)

    with cancelled_when(unwanted.is_set, JobCount(cancelled.set)):
        yield Case(lambda: None, works, PROCESS)


@contextmanager
def _hydration_watch(_: Place) -> Iterator[Case]:
    seen, written = threading.Event(), threading.Event()

    class Report:
        tells_nodes = True

        def node_done(self, lir_ids: object, workers: object) -> None:
            assert (lir_ids, workers) == ((1,), [0])
            seen.set()

    def works() -> None:
        seen.clear()
        assert seen.wait(HANG)

    watch = _Watch(Report(), [1], lambda _sizes: None)  # type: ignore[arg-type]
    write = threading.Thread(
        target=watch.run, args=(lambda: written.wait(HANG), lambda: (frozenset({0}), {0: 1}))
    )
    write.start()
    yield Case(lambda: None, works, PROCESS)
    written.set()
    write.join(HANG)


CASES: dict[str, Any] = {
    "buffered-writer": _buffered_writer,
    "catalog-follower": _catalog_follower,
    "collection-follower": _collection_follower,
    "commands": _commands,
    "group-commit": _group_commit,
    "export-log": _export_log,
    "first-worker": _first_worker,
    "flush-worker": _flush_worker,
    "hydrate-worker": _hydrate_worker,
    "hydration-watch": _hydration_watch,
    "leader": _leader,
    "leases": _leases,
    "log-follower": _log_follower,
    "maintenance": _maintenance,
    "replica-metrics": _replica_metrics,
    "scheduler": _scheduler,
    "statement-timeouts": _statement_timeouts,
    "status-writer": _status_writer,
    "open-worker": _open_worker,
    "sort-worker": _sort_worker,
    "step-worker": _step_worker,
    "tables-follow": _tables_follow,
    "unwanted-jobs": _unwanted_jobs,
    "warm-worker": _warm_worker,
}
#: Kinds that need what is not here, and whose test is elsewhere.
ELSEWHERE = {
    "postgres-listener": "plugins/mzsql-postgres/tests/test_postgres_waiting.py",
    "spark-catalog": "tests/spark/test_spark_register.py",
    "plugin-rows": "tests/adapter/test_adapter_plugin_relations.py",
    **dict.fromkeys(
        (
            "introspection",
            "replica-link",
            "replica-commands",
            "replica-listener",
            "replica-deferred",
            "controller-commands",
            "controller-responses",
        ),
        "tests/compute/test_compute_transport.py",
    ),
}
#: Where a thread's name is not spelled out, and the names that it has.
NAMED = {
    "mzsql/persist/background_work.py": {"maintenance", "leases"},
    "mzsql/compute/transport/server.py": {"controller-commands", "controller-responses"},
    "mzsql/compute/replica/scheduling/work.py": {
        "step-worker",
        "first-worker",
        "hydrate-worker",
        "flush-worker",
        "open-worker",
        "sort-worker",
        "warm-worker",
    },
}


def _started(path: Path) -> Iterator[str | None]:
    """The kinds of threads that a module starts; None for one whose name is made."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and any(k.arg == "thread_name" for k in node.keywords):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name == "start":
                first = node.args[0]
                yield first.value if isinstance(first, ast.Constant) else None


def test_every_kind_of_thread_has_a_case() -> None:
    found: set[str] = set()
    for path in [*(ROOT / "mzsql").rglob("*.py"), *(ROOT / "plugins").glob("*/src/**/*.py")]:
        for kind in _started(path):
            found |= {kind} if kind else NAMED[path.relative_to(ROOT).as_posix()]
    assert found == CASES.keys() | ELSEWHERE.keys()
    for kind, test in ELSEWHERE.items():
        assert kind in (ROOT / test).read_text()


@pytest.mark.parametrize("kind", sorted(CASES))
def test_a_kind_of_thread_goes_on_after_an_error_that_nobody_expects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(background_work, "_HEARTBEAT_CHECK_SECONDS", 0.01)
    well, planted, rounds = Supervised.well, threading.Event(), threading.Semaphore(0)

    def failing(own: Supervised) -> None:
        if own.status.name == kind and planted.is_set():
            raise RuntimeError("planted")
        well(own)
        if own.status.name == kind:
            rounds.release()

    monkeypatch.setattr(Supervised, "well", failing)
    place = Place(tmp_path / "env")
    try:
        before = restarts_of(kind)
        with CASES[kind](place) as case:
            supervisor = case.supervisor or place.env.supervisor

            def shown(status: str, error: str | None) -> bool:
                return supervisor.wait_for(
                    lambda all_: any(
                        (one.name, one.status, one.error) == (kind, status, error)
                        and one.restarts > 0
                        for one in all_
                    ),
                    HANG,
                )

            planted.set()
            case.stir()
            error = "internal error: RuntimeError: planted"
            assert shown("restarting", error), supervisor.statuses()
            assert ("restarting", error) in {row[:2] for row in place.shown(kind)}
            planted.clear()
            while rounds.acquire(blocking=False):
                pass
            case.works()
            assert rounds.acquire(timeout=HANG)
            assert shown("running", None), supervisor.statuses()
            assert any(
                (status, found) == ("running", None) and restarts > 0
                for status, found, restarts in place.shown(kind)
            )
            assert restarts_of(kind) >= before + 1
    finally:
        planted.clear()
        place.close()
