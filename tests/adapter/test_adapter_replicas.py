"""Replicas as the process that leads has them: one that is away, hangs, is another's or was dropped is that one's affair."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import mzsql
from mzsql.adapter.dataflows import replica_history
from mzsql.adapter.dataflows.replica_reports import ReplicaReports
from mzsql.adapter.environment.environment import CATALOG_SHARD, Environment
from mzsql.adapter.environment.leader import this_process
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.replicas import places, process
from mzsql.catalog.change import Change
from mzsql.catalog.commands.clusters import replica_named
from mzsql.catalog.commands.replicas import take_replica
from mzsql.catalog.objects import Replica, ReplicaProcess
from mzsql.compute.controller import controller as controllers
from mzsql.compute.controller.client import ReplicaClient
from mzsql.compute.protocol import CreateDataflow
from mzsql.compute.transport import frames
from mzsql.compute.transport.frames import Hello
from mzsql.compute.transport.server import ReplicaServer
from mzsql.compute.transport.usage import Usage
from mzsql.persist import SystemClock
from mzsql.repr.errors import DuplicateObject, EnvironmentRefused, ObjectInUse
from mzsql.threads import Supervisor

WAIT = 60.0
VIEW = "SELECT a, sum(b) AS s FROM t GROUP BY a"


@pytest.fixture
def con(tmp_path: Path) -> Iterator[mzsql.Connection]:
    """A process that leads, with a table, and a cluster of two replicas of which one is another process's that is not there."""
    with mzsql.connect(str(tmp_path / "env")) as made:
        made.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        made.execute("CREATE TABLE t (a int, b int)")
        made.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
        made.execute("CREATE CLUSTER c REPLICAS (r1 (SIZE '1'), r2 (SIZE '1'))")
        take(made, "r2", elsewhere(1))
        yield made


def elsewhere(port: int, who: str = "elsewhere 17") -> ReplicaProcess:
    """Who is said to run a replica, at a port of this machine."""
    return ReplicaProcess(who, "127.0.0.1", port, frames.new_secret(), mzsql.__version__)


def take(con: mzsql.Connection, name: str, by: ReplicaProcess) -> None:
    catalog = con.coordinator.env.catalog
    seen = replica_named(catalog.sync(), "c", name)
    catalog.transact(lambda state: (take_replica(state, seen, by, name), None))


def eventually(found: Callable[[], object], what: Callable[[], object] = str) -> None:
    until = time.monotonic() + WAIT
    while not found():
        assert time.monotonic() < until, what()
        time.sleep(0.02)


def rows(con: mzsql.Connection, query: str) -> list[tuple[object, ...]]:
    return sorted(con.execute(query).fetchall())


def registered(con: mzsql.Connection, prefix: str) -> list[str]:
    found = con.coordinator.env.sync().arrangements
    return [name for name in found if name.startswith(prefix)]


def test_an_object_runs_where_it_can_and_is_told_again_where_it_was_not_taken(
    con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    away = replica_named(con.coordinator.env.catalog.state, "c", "r2").id
    create, refuses, told = ReplicaClient.create_dataflow, [True], []

    def refusing(self: ReplicaClient, command: CreateDataflow) -> None:
        if self.replica_id == away:
            if refuses[0]:
                raise ObjectInUse("it takes none")
            told.append(command.id)
        create(self, command)

    monkeypatch.setattr(ReplicaClient, "create_dataflow", refusing)
    con.execute(f"CREATE MATERIALIZED VIEW v IN CLUSTER c AS {VIEW}")
    assert rows(con, "SELECT * FROM v") == [(1, 1), (2, 2)]
    state = con.coordinator.env.catalog.state
    view = state.by_name("public", "v")
    assert view is not None
    assert con.coordinator.dataflows.failure(view.id) is None
    assert not [s for s in con.execute(STANDS).fetchall() if "refused" in s]
    refuses[0] = False
    eventually(lambda: told == [view.id], lambda: told)


STANDS = "SELECT status FROM mz_internal.mz_compute_dataflow_statuses"


def test_what_a_dropped_replica_has_left_is_given_up_though_another_one_is_away(
    con: mzsql.Connection,
) -> None:
    con.execute("CREATE CLUSTER d REPLICAS (r1 (SIZE '1'))")
    con.execute("CREATE INDEX i IN CLUSTER d ON t (a)")
    con.execute(f"CREATE MATERIALIZED VIEW v IN CLUSTER d AS {VIEW}")
    con.execute(f"CREATE MATERIALIZED VIEW w IN CLUSTER c AS {VIEW}")
    assert rows(con, "SELECT * FROM v") == rows(con, "SELECT * FROM w") == [(1, 1), (2, 2)]
    env = con.coordinator.env
    gone = replica_named(env.catalog.state, "d", "r1").id
    shards = [env.catalog.state.arrangements[name] for name in registered(con, f"{gone}/")]
    held = [h.id for shard in shards for h in env.persist.holders(shard) if "/" in h.id]
    assert [one.partition("/")[0] for one in held] == [gone]
    con.execute("DROP CLUSTER REPLICA d.r1")
    eventually(lambda: not registered(con, f"{gone}/"), lambda: registered(con, f"{gone}/"))
    for shard in shards:
        left = env.persist.inspect(shard)
        assert left is None or left.finalized


def test_a_replica_that_moves_or_is_dropped_leaves_no_history_held(con: mzsql.Connection) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v IN CLUSTER c AS {VIEW}")
    assert rows(con, "SELECT * FROM v") == [(1, 1), (2, 2)]
    env = con.coordinator.env
    table = env.catalog.state.by_name("public", "t")
    assert table is not None
    both = 2  # one for the replica of this process, one for that of another
    held = env.collections._open[table.id].holds
    eventually(lambda: len(held) == both, lambda: held)
    take(con, "r1", elsewhere(1))
    controller = con.coordinator.dataflows.controller
    eventually(lambda: all(one.apart for one in controller.replicas))
    eventually(lambda: len(held) == both, lambda: held)
    con.execute("DROP CLUSTER REPLICA c.r1")
    eventually(lambda: len(held) == both - 1, lambda: held)
    con.execute("DROP CLUSTER c CASCADE")
    eventually(lambda: not held, lambda: held)


def test_what_became_of_replicas_is_kept_and_nothing_while_nothing_does(
    con: mzsql.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_history, "SETTLED_SECONDS", 0.0)
    history = (
        "SELECT r.name, h.process_id, h.status, h.reason"
        " FROM mz_internal.mz_cluster_replica_status_history AS h"
        " JOIN mz_cluster_replicas AS r ON r.id = h.replica_id"
        " JOIN mz_clusters AS c ON c.id = r.cluster_id WHERE c.name = 'c' ORDER BY h.occurred_at"
    )

    def told(of: mzsql.Connection = con) -> dict[str, list[tuple[object, ...]]]:
        found: dict[str, list[tuple[object, ...]]] = {}
        for name, *rest in of.execute(history).fetchall():
            found.setdefault(name, []).append(tuple(rest))
        return found

    con.execute(f"CREATE MATERIALIZED VIEW v IN CLUSTER c AS {VIEW}")

    def last(name: str) -> tuple[object, ...]:
        return told().get(name, [(0, "", "")])[-1]

    # Until it was met, or could not be, either may be told to be offline, once.
    eventually(lambda: last("r1") == (0, "online", None), told)
    eventually(lambda: str(last("r2")[2]).startswith("nobody answers at 127.0.0.1:1: "), told)
    assert last("r2")[1] == "offline"
    since = (
        "SELECT count(*) FROM mz_internal.mz_cluster_replica_statuses AS s JOIN mz_internal.mz_cluster_replica_status_history AS h"
        " ON h.replica_id = s.replica_id AND h.status = s.status AND h.occurred_at = s.updated_at"
        " JOIN mz_cluster_replicas AS r ON r.id = s.replica_id JOIN mz_clusters AS c ON c.id = r.cluster_id WHERE c.name = 'c'"
    )
    assert con.execute(since).fetchall() == [(2,)]
    before = told()
    assert all(len(one) <= 2 for one in before.values())
    # It is tried again and again, and the reason stays what it is.
    looks = con.coordinator.dataflows
    for _ in range(5):
        looks.tick()
    assert told() == before
    take(con, "r1", elsewhere(2))
    eventually(lambda: len(told()["r1"]) == len(before["r1"]) + 1, told)
    assert last("r1")[1:] != ("online", None)
    con.execute("CREATE CLUSTER REPLICA c.r3 (SIZE '1')")
    eventually(lambda: "r3" in told(), told)
    assert told()["r3"] == [(0, "offline", replica_history.NOBODY)]
    with mzsql.connect(str(tmp_path / "env"), read_only=True) as beside:
        eventually(lambda: told(beside) == told(con), lambda: told(beside))


def test_what_replicas_take_is_kept_from_time_to_time_for_those_that_answer(
    con: mzsql.Connection, tmp_path: Path
) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v IN CLUSTER c AS {VIEW}")
    names = "JOIN mz_cluster_replicas AS r ON r.id = m.replica_id JOIN mz_clusters AS c ON c.id = r.cluster_id"
    history = (
        "SELECT c.name || '.' || r.name, m.occurred_at, m.memory_bytes BETWEEN 1 AND m.memory_limit AND"
        " m.disk_bytes BETWEEN 0 AND m.disk_limit AND m.cpu_nano_cores >= 0 AND m.cpu_limit > 0"
        f" FROM mz_internal.mz_cluster_replica_metrics_history AS m {names}"
    )

    def told(of: mzsql.Connection = con) -> dict[str, set[object]]:
        found: dict[str, set[object]] = {}
        for name, at, within in of.execute(history).fetchall():
            assert within is True
            found.setdefault(name, set()).add(at)
        return found

    con.execute("ALTER SYSTEM SET replica_metrics_history_interval = '10 ms'")
    eventually(lambda: len(told().get("c.r1", ())) > 1, told)
    assert told().keys() == {"quickstart.r1", "c.r1"}
    utilized = (
        "SELECT c.name, m.occurred_at FROM mz_internal.mz_cluster_replica_utilization_history AS m"
        f" {names} WHERE m.memory_percent BETWEEN 0 AND 100 AND m.disk_percent BETWEEN 0 AND 100 AND m.cpu_percent >= 0"
    )
    seen = told()["c.r1"]
    assert {at for name, at in rows(con, utilized) if name == "c"} >= seen
    first = min(seen)
    con.execute("ALTER SYSTEM SET replica_metrics_history_retention_interval = '1 ms'")
    eventually(lambda: min(told().get("c.r1", {first})) > first, told)
    con.execute("ALTER SYSTEM SET replica_metrics_history_interval = '0'")
    con.execute("ALTER SYSTEM RESET replica_metrics_history_retention_interval")
    assert rows(con, "SHOW replica_metrics_history_retention_interval") == [("30 d",)]
    with mzsql.connect(str(tmp_path / "env"), read_only=True) as beside:
        eventually(lambda: told(beside) == told(), lambda: (told(beside), told()))


def test_a_replica_that_hangs_when_asked_what_it_takes_delays_nothing_else(
    con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answer = threading.Semaphore(0), threading.Event()
    usage = ReplicaReports.usage

    def hanging(self: ReplicaReports, replica: Replica) -> Usage | None:
        asked.release()
        assert answer.wait(WAIT)
        return usage(self, replica)

    monkeypatch.setattr(ReplicaReports, "usage", hanging)
    con.coordinator.dataflows._metrics._usage = con.coordinator.dataflows.replicas.usage
    con.execute("ALTER SYSTEM SET replica_metrics_history_interval = '1 ms'")
    con.execute(f"CREATE MATERIALIZED VIEW v IN CLUSTER c AS {VIEW}")
    assert asked.acquire(timeout=WAIT)
    con.execute("INSERT INTO t VALUES (3, 3)")
    assert rows(con, "SELECT * FROM v") == [(1, 1), (2, 2), (3, 3)]
    for _ in range(5):
        con.coordinator.dataflows.tick()
    lately = "SELECT count(*) FROM mz_internal.mz_cluster_replica_metrics_history"
    assert rows(con, lately) == [(0,)]
    answer.set()
    eventually(lambda: rows(con, lately)[0][0], lambda: rows(con, lately))


def test_history_is_not_kept_for_ever_for_a_replica_that_is_away(con: mzsql.Connection) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW v IN CLUSTER c AS {VIEW}")
    assert rows(con, "SELECT * FROM v") == [(1, 1), (2, 2)]
    env, controller = con.coordinator.env, con.coordinator.dataflows.controller
    table = env.catalog.state.by_name("public", "t")
    assert table is not None
    held = env.collections._open[table.id].holds
    eventually(lambda: len(held) == 2, lambda: held)
    controller._history_seconds = 0.0
    eventually(lambda: len(held) == 1, lambda: held)
    reasons = "SELECT reason FROM mz_internal.mz_cluster_replica_statuses WHERE status = 'offline'"
    ((reason,),) = con.execute(reasons).fetchall()
    assert reason.endswith("; history is kept for it no more, and it hydrates anew")
    # The other one goes, and nobody else is there to bring the view forward.
    take(con, "r1", elsewhere(1))
    eventually(lambda: all(one.apart for one in controller.replicas))
    eventually(lambda: len(held) == 2, lambda: held)


def test_a_view_that_was_dropped_while_its_replica_was_away_holds_nothing_when_it_is_back(
    tmp_path: Path,
) -> None:
    place = str(tmp_path / "env")
    with mzsql.connect(place) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        con.execute("CREATE TABLE t (a int, b int)")
        con.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
        con.execute("CREATE INDEX i ON t (a)")
        con.execute(f"CREATE MATERIALIZED VIEW v AS {VIEW}")
        con.execute(f"CREATE MATERIALIZED VIEW w AS {VIEW}")
        assert rows(con, "SELECT * FROM v") == rows(con, "SELECT * FROM w")
    # Nobody maintains anything while this is done.
    env = Environment.open(locate(place))
    view = env.catalog.state.by_name("public", "v")
    assert view is not None
    env.catalog.transact(lambda _: (Change(items={view.id: None}), None))
    env.close()

    def holders(con: mzsql.Connection) -> set[str]:
        env = con.coordinator.env
        shards = env.catalog.state.arrangements.values()
        states = [env.persist.inspect(shard) for shard in shards]
        return {one for state in states if state is not None for one in state.critical}

    with mzsql.connect(place) as con:
        assert rows(con, "SELECT * FROM w") == [(1, 1), (2, 2)]
        eventually(lambda: not any(view.id in one for one in holders(con)), lambda: holders(con))
        assert any("/" in one for one in holders(con))


def test_a_statement_does_not_wait_for_replicas_that_take_nothing(
    con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def settled(self: ReplicaClient, nonce: int, timeout: float) -> bool:
        asked.append(self.replica_id)
        assert (timeout <= controllers._APART_SECONDS) == self.apart
        return nonce > 0

    con.execute(f"CREATE MATERIALIZED VIEW v IN CLUSTER c AS {VIEW}")
    with monkeypatch.context() as patched:
        patched.setattr(ReplicaClient, "settled", settled)
        con.execute(f"CREATE MATERIALIZED VIEW w IN CLUSTER c AS {VIEW}")
    assert len(set(asked)) == 2


# --- whose name a replica's is ----------------------------------------------------------------


class Late(SystemClock):
    """On which every wait is over at once."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += places.TAKEN_SECONDS
        return self._now

    def sleep(self, seconds: float) -> None:
        del seconds


def of(by: ReplicaProcess | None) -> Replica:
    return Replica("r7", "c1", "r1", "1", 1, process=by)


def free(by: ReplicaProcess | None) -> bool:
    return places.is_free(of(by), "env", "1.0", Late())


def test_the_name_of_a_replica_is_free_where_its_process_is_surely_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    assert free(None)
    # Nobody listens there any more: also where a process of that number runs, which is another one then.
    assert free(elsewhere(port))
    assert free(elsewhere(port, this_process()))
    gone = f"{socket.gethostname()} {2**22 + 1}"
    assert free(elsewhere(port, gone))


def test_a_process_that_listens_and_does_not_answer_has_its_name_on_this_machine() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
        assert not free(elsewhere(port, this_process()))
        assert free(elsewhere(port))


@pytest.mark.parametrize("build", ["1.0", "2.0"])
def test_a_process_that_answers_has_its_name_whatever_it_answers(build: str) -> None:
    supervisor = Supervisor()
    sock = socket.create_server(("127.0.0.1", 0))
    by = elsewhere(sock.getsockname()[1])
    identity = Hello("env", build, "r7", None, b"", b"")
    server = ReplicaServer(sock, by.secret, identity, pytest.fail, supervisor.start, pytest.fail)
    try:
        assert not free(by)
    finally:
        server.close()


def test_another_program_at_the_address_of_a_replica_does_not_have_its_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as sock:

        def answer() -> None:
            one, _ = sock.accept()
            with one, contextlib.suppress(ConnectionError):
                one.sendall(b"SSH-2.0-OpenSSH_9.6\r\n")
                one.recv(4096)

        thread = threading.Thread(target=answer)
        thread.start()
        assert free(elsewhere(sock.getsockname()[1], this_process()))
        thread.join()


def test_a_replica_of_a_newer_version_is_refused_before_it_has_written(
    con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = con.coordinator.env
    con.execute(f"CREATE MATERIALIZED VIEW v IN CLUSTER c AS {VIEW}")
    # As an older release leaves it: who opens it adds what is missing.
    missing = "mz_internal.mz_refreshes"
    env.catalog.transact(lambda _: (Change(managed={missing: None}), None))
    monkeypatch.setattr(process, "VERSION", "9.9.9")
    monkeypatch.setattr("mzsql.adapter.environment.opening.VERSION", "9.9.9")
    locations = locate(env.locations.where, create=False)
    with pytest.raises(
        EnvironmentRefused, match=r"this is mzsql 9\.9\.9, and the process that leads"
    ):
        process.open_for_replica(locations, "c", "r1")
    con.close()
    with pytest.raises(EnvironmentRefused, match="a replica does not upgrade it"):
        process.open_for_replica(locations, "c", "r1")
    monkeypatch.undo()
    again = Environment.open(locations, read_only=True)
    try:
        state = again.persist.inspect(CATALOG_SHARD)
        assert state is not None
        assert state.applier_version == mzsql.__version__
        assert missing not in again.catalog.state.managed
    finally:
        again.close()


def test_a_name_that_is_taken_is_refused_before_anything_is_written(con: mzsql.Connection) -> None:
    env = con.coordinator.env
    with socket.create_server(("127.0.0.1", 0)) as sock:
        by = elsewhere(sock.getsockname()[1])
        identity = Hello(
            env.id, "another", replica_named(env.catalog.state, "c", "r1").id, None, b"", b""
        )
        server = ReplicaServer(
            sock, by.secret, identity, pytest.fail, env.supervisor.start, pytest.fail
        )
        take(con, "r1", by)
        step = env.catalog.sync() and env.catalog.step
        try:
            with pytest.raises(DuplicateObject, match="is run by another process: elsewhere 17"):
                process.open_for_replica(locate(env.locations.where, create=False), "c", "r1")
        finally:
            server.close()
        env.catalog.sync()
        assert env.catalog.step == step


def test_who_asks_how_replicas_are_asks_them_side_by_side(
    con: mzsql.Connection, tmp_path: Path
) -> None:
    """Each of two answers once the other was asked, too: one that hangs holds up no answer of another."""
    con.close()
    with contextlib.ExitStack() as undo:
        listening = [
            undo.enter_context(socket.create_server(("127.0.0.1", 0), backlog=16)) for _ in range(2)
        ]
        env = Environment.open(locate(str(tmp_path / "env")))
        for name, sock in zip(("r1", "r2"), listening, strict=True):
            seen = replica_named(env.catalog.sync(), "c", name)
            change = take_replica(env.catalog.state, seen, elsewhere(sock.getsockname()[1]), name)
            env.catalog.transact(lambda _, change=change: (change, None))
        env.close()

        def answer() -> None:
            with contextlib.suppress(OSError):
                while True:
                    asked = [sock.accept()[0] for sock in listening]
                    for one in asked:
                        one.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with mzsql.connect(str(tmp_path / "env"), read_only=True) as beside:
            found = beside.execute(
                "SELECT s.reason FROM mz_internal.mz_cluster_replica_statuses AS s"
                " JOIN mz_cluster_replicas AS r ON r.id = s.replica_id"
                " JOIN mz_clusters AS c ON c.id = r.cluster_id WHERE c.name = 'c'"
            ).fetchall()
            for (reason,) in found:
                assert reason.startswith("nobody answers at 127.0.0.1:")
                assert "the other side has closed the connection" in reason
            assert len(found) == len(listening)
            asked = "SELECT count(*) FROM mz_internal.mz_cluster_replica_metrics"
            assert beside.execute(asked).fetchall() == [(0,)]
        for sock in listening:
            sock.shutdown(socket.SHUT_RDWR)
        thread.join(WAIT)
