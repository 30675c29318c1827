"""Replicas in real processes: found, commanded, killed, stopped and woken, while the views stay right."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator

import duckdb
import msgspec
import pytest
from hydration_kit import Watcher
from replica_kit import WAIT, Process, offline, online, pids_of, rows, statuses, stop, until

import mzsql
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.catalog.change import Change
from mzsql.repr.errors import EnvironmentRefused

pytestmark = pytest.mark.timeout(900)

VIEW = "SELECT a, sum(b) AS s, count(*) AS n FROM t GROUP BY a"


@pytest.fixture
def run(env: str) -> Iterator[Callable[..., Process]]:
    """Starts commands on the environment; they end with the test."""
    begun: list[Process] = []

    def start(command: str, *arguments: str) -> Process:
        begun.append(Process(command, "--env", env, *arguments))
        return begun[-1]

    yield start
    for one in begun:
        one.kill()


@pytest.fixture
def replica(run: Callable[..., Process]) -> Callable[..., Process]:
    """Starts a replica, and waits until it listens."""

    def start(name: str, cluster: str = "c") -> Process:
        made = run("replica", "--cluster", cluster, "--name", name)
        assert made.line().startswith(f"replica {cluster}.{name} listens at 127.0.0.1:")
        return made

    return start


@pytest.fixture
def con(env: str) -> Iterator[mzsql.Connection]:
    """A process that leads, with a table, and a cluster of two replicas."""
    with mzsql.connect(env) as made:
        made.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        made.execute("CREATE TABLE t (a int, b int)")
        made.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
        made.execute("CREATE CLUSTER c REPLICAS (r1 (SIZE '1'), r2 (SIZE '2'))")
        yield made


def test_a_view_is_maintained_by_a_process_and_goes_on_with_another_when_it_is_killed(
    con: mzsql.Connection, replica: Callable[..., Process], run: Callable[..., Process]
) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW w IN CLUSTER c AS {VIEW}")
    assert rows(con, "SELECT * FROM w") == [(1, 1, 1), (2, 2, 1)]
    assert statuses(con) == {"c.r1": ("online", None), "c.r2": ("offline", "no process runs it")}
    first = replica("r1")
    until(con, online("r1"))
    con.execute("INSERT INTO t VALUES (1, 10)")
    assert rows(con, "SELECT * FROM w") == [(1, 11, 2), (2, 2, 1)]
    # The process that leads may have done that itself, and command the other one a moment later.
    end = time.monotonic() + WAIT
    while [one.offline for one in con.coordinator.dataflows.controller.replicas] != [None]:
        assert time.monotonic() < end
        time.sleep(0.05)
    # What is refused changes nothing.
    for arguments, error in (
        (("c", "r1"), "ERROR:  cluster replica c.r1 is run by another process: "),
        (("nowhere", "r1"), "ERROR:  unknown cluster 'nowhere'\n"),
        (("c", "r9"), 'ERROR:  CLUSTER c has no CLUSTER REPLICA named "r9"\n'),
    ):
        code, said, errors = run("replica", "--cluster", arguments[0], "--name", arguments[1]).end()
        assert (code, said) == (1, "")
        assert errors.startswith(error)
        assert errors.count("\n") == 1
    assert statuses(con)["c.r1"] == ("online", None)

    second = replica("r2")
    until(con, online("r1", "r2"))
    taken = "SELECT memory_bytes < memory_limit FROM mz_internal.mz_cluster_replica_metrics"
    assert rows(con, taken) == [(True,)] * 3
    first.signal(signal.SIGKILL)
    first.kill()
    assert rows(con, taken) == [(True,)] * 2
    con.execute("INSERT INTO t VALUES (3, 3)")
    assert rows(con, "SELECT * FROM w") == [(1, 11, 2), (2, 2, 1), (3, 3, 1)]
    until(con, offline("r1", "nobody answers at 127.0.0.1:"))
    assert con.execute("SHOW CLUSTER REPLICAS").fetchall()[:2] == [
        ("c", "r1", "1", False, ""),
        ("c", "r2", "2", True, ""),
    ]
    # One that takes its place is found without anybody's help, and finds what is there.
    again = replica("r1")
    until(con, online("r1", "r2"))
    came_and_went = """
        SELECT h.status, h.reason
        FROM mz_internal.mz_cluster_replica_status_history AS h
        JOIN mz_cluster_replicas AS r ON r.id = h.replica_id
        JOIN mz_clusters AS c ON c.id = r.cluster_id
        WHERE c.name = 'c' AND r.name = 'r1' ORDER BY h.occurred_at
    """
    end = time.monotonic() + WAIT
    while [x for x, _ in con.execute(came_and_went).fetchall()][-2:] != ["offline", "online"]:
        assert time.monotonic() < end, con.execute(came_and_went).fetchall()
        time.sleep(0.1)
    reasons = [reason for status, reason in con.execute(came_and_went) if status == "offline"]
    assert any(reason.startswith("nobody answers at 127.0.0.1:") for reason in reasons), reasons
    con.execute("DROP CLUSTER REPLICA c.r2")
    assert second.end() == (0, "replica c.r2 has ended: it was dropped\n", "")
    con.execute("DELETE FROM t WHERE a = 1")
    assert rows(con, "SELECT * FROM w") == [(2, 2, 1), (3, 3, 1)]
    # Asked to end it gives the replica back to the process that leads.
    again.signal(signal.SIGTERM)
    assert again.end() == (0, "replica c.r1 has ended: it was asked to\n", "")
    until(con, online("r1"))
    con.execute("INSERT INTO t VALUES (4, 4)")
    assert rows(con, "SELECT * FROM w") == [(2, 2, 1), (3, 3, 1), (4, 4, 1)]
    assert con.coordinator.dataflows.controller.status()[0].state == "running"


@pytest.mark.long
def test_what_replicas_tell_stays_while_one_hangs_and_goes_when_it_is_killed(
    env: str, con: mzsql.Connection, replica: Callable[..., Process]
) -> None:
    first, second = replica("r1"), replica("r2")
    con.execute(f"CREATE MATERIALIZED VIEW w IN CLUSTER c AS {VIEW}")
    until(con, online("r1", "r2"))
    told = """
        SELECT r.name, count(*)
        FROM mz_cluster_replicas AS r
        JOIN mz_internal.mz_compute_frontiers_unified AS f ON f.replica_id = r.id AND f.time > 0
        JOIN mz_internal.mz_compute_operator_hydration_statuses_per_worker AS h
            ON h.replica_id = r.id AND h.object_id = f.export_id AND h.hydrated
        GROUP BY r.name
    """

    def names(of: mzsql.Connection) -> list[object]:
        return [name for name, _ in rows(of, told)]

    def come_to(wanted: list[object], *of: mzsql.Connection) -> None:
        end = time.monotonic() + WAIT
        while any(names(one) != wanted for one in of):
            assert time.monotonic() < end, [rows(one, told) for one in of]
            time.sleep(0.05)

    with mzsql.connect(env, read_only=True) as beside:
        come_to(["r1", "r2"], con, beside)
        stop(second.process.pid, con)
        until(con, offline("r2", "no sign of life"))
        con.execute("INSERT INTO t VALUES (1, 7)")
        assert rows(con, "SELECT * FROM w") == [(1, 8, 2), (2, 2, 1)]
        assert names(con) == names(beside) == ["r1", "r2"]
        _one_by_one(con)
        # Nor does it matter that nobody is left who could answer.
        stop(first.process.pid, con)
        until(con, offline("r1", "no sign of life"))
        assert names(con) == names(beside) == ["r1", "r2"]
        _one_by_one(con)
        first.signal(signal.SIGCONT)
        second.signal(signal.SIGCONT)
        until(con, online("r1", "r2"))
        assert names(con) == ["r1", "r2"]
        second.kill()
        come_to(["r1"], con, beside)
        replica("r2")
        come_to(["r1", "r2"], con, beside)


def _one_by_one(con: mzsql.Connection) -> None:
    """See that what one replica tells is there for each of the two, and that another name is refused."""
    reads = "SELECT export_id, time > 0 FROM mz_introspection.mz_compute_frontiers"
    con.execute("SET cluster = c")
    with pytest.raises(mzsql.Error, match="log source reads must target a replica"):
        con.execute(reads)
    for name in ("r1", "r2"):
        con.execute(f"SET cluster_replica = {name}")
        ((export, known),) = con.execute(reads).fetchall()
        assert known
        spent = "SELECT sum(elapsed_ns) > 0 FROM mz_introspection.mz_scheduling_elapsed"
        assert con.execute(spent).fetchall() == [(True,)]
        mapped = con.execute("SELECT DISTINCT global_id FROM mz_introspection.mz_lir_mapping")
        assert mapped.fetchall() == [(export,)]
        for what in ("HYDRATION", "CPU", "MEMORY"):
            found = con.execute(f"EXPLAIN ANALYZE {what} FOR MATERIALIZED VIEW w").fetchall()
            assert any("Reduce" in row[0] for row in found)
    con.execute("SET cluster_replica = r3")
    with pytest.raises(mzsql.Error, match=r"unknown cluster replica 'c\.r3'"):
        con.execute(reads)
    con.execute("RESET cluster_replica; RESET cluster")


@pytest.mark.long
def test_what_is_hydrated_stays_so_through_reconnect_and_take_over(
    env: str, con: mzsql.Connection, replica: Callable[..., Process]
) -> None:
    first = replica("r1")
    con.execute("DROP CLUSTER REPLICA c.r2")
    until(con, online("r1"))
    with mzsql.connect(env, read_only=True) as beside:
        watcher = Watcher(beside)
        with watcher.at_work():
            con.execute(f"CREATE MATERIALIZED VIEW w IN CLUSTER c AS {VIEW}")
            con.execute("CREATE INDEX i IN CLUSTER c ON t (b)")
            assert rows(con, "SELECT * FROM w") == [(1, 1, 1), (2, 2, 1)]
            stop(first.process.pid, con)
            until(con, offline("r1", "no sign of life"))
            first.signal(signal.SIGCONT)
            until(con, online("r1"))
            con.execute("INSERT INTO t VALUES (1, 7)")
            assert rows(con, "SELECT * FROM w") == [(1, 8, 2), (2, 2, 1)]
            # Another process leads, and meets the replica as it is.
            with mzsql.connect(env) as second:
                con.close()
                until(second, online("r1"))
                second.execute("INSERT INTO t VALUES (1, 7)")
                assert rows(second, "SELECT * FROM w") == [(1, 15, 3), (2, 2, 1)]
        watcher.check("w", "i")


def test_a_replica_of_another_version_than_the_one_that_leads_is_refused(
    con: mzsql.Connection, run: Callable[..., Process]
) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW w IN CLUSTER c AS {VIEW}")
    catalog = con.coordinator.env.catalog
    before = catalog.sync().lease
    assert before is not None
    assert before.build == con.coordinator.env.build
    other = msgspec.structs.replace(before, build="9.9.9")
    catalog.transact(lambda _: (Change(lease=other), None))
    code, said, errors = run("replica", "--cluster", "c", "--name", "r1").end()
    assert (code, said) == (1, "")
    assert "runs 9.9.9" in errors
    assert errors.count("\n") == 1
    state = catalog.sync()
    assert all(one.process is None for one in state.replicas.values())


def test_a_size_that_the_machine_cannot_give_is_told_and_one_that_is_none_is_refused(
    con: mzsql.Connection, run: Callable[..., Process]
) -> None:
    with pytest.raises(mzsql.Error, match="unknown cluster replica size 999"):
        con.execute("CREATE CLUSTER REPLICA c.r3 (SIZE '999')")
    con.execute("CREATE CLUSTER REPLICA c.r3 (SIZE '32')")
    large = run("replica", "--cluster", "c", "--name", "r3")
    assert large.line().startswith("replica c.r3 listens at 127.0.0.1:")
    large.signal(signal.SIGTERM)
    code, said, errors = large.end()
    assert (code, said) == (0, "replica c.r3 has ended: it was asked to\n")
    processors = os.cpu_count() or 1
    told = f"WARNING:  size 32 has 32 workers, and this machine {processors} processors: "
    assert errors.startswith(told) == (processors < 32), errors


def test_there_is_no_replica_where_there_is_no_environment(
    env: str, run: Callable[..., Process]
) -> None:
    code, said, errors = run("replica", "--cluster", "c", "--name", "r1").end()
    assert (code, said) == (1, "")
    assert errors.startswith("ERROR:  ")
    with pytest.raises(EnvironmentRefused):
        Environment.open(locate(env, create=False), create=False)


def alive(pid: int) -> bool:
    """Whether there is a process of this number, be it one that has ended and that nobody has waited for."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def eventually(found: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT
    while not found():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_processes_of_replicas_end_with_what_keeps_them_running(
    con: mzsql.Connection, run: Callable[..., Process]
) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW w IN CLUSTER c AS {VIEW}")
    serving = run("serve-replicas", "--cluster", "c")
    # Nobody hears what they say.
    assert serving.process.stdout is not None
    serving.process.stdout.close()
    # The first one is online in the process that leads, too.
    eventually(lambda: len(pids_of(con)) == 2)
    until(con, online("r1", "r2"))
    first, second = pids_of(con)
    con.execute("DROP CLUSTER REPLICA c.r2")
    # It ends, and somebody has waited for it.
    eventually(lambda: not alive(second))
    assert alive(first)
    con.execute("INSERT INTO t VALUES (3, 3)")
    assert rows(con, "SELECT * FROM w") == [(1, 1, 1), (2, 2, 1), (3, 3, 1)]
    until(con, online("r1"))
    os.kill(serving.process.pid, signal.SIGKILL)
    serving.process.wait()
    eventually(lambda: not pids_of(con))
    eventually(lambda: not alive(first))
    assert rows(con, "SELECT * FROM w") == [(1, 1, 1), (2, 2, 1), (3, 3, 1)]


@pytest.mark.long
def test_replicas_that_are_killed_every_few_seconds_leave_the_views_right(
    con: mzsql.Connection, run: Callable[..., Process]
) -> None:
    con.execute(f"CREATE MATERIALIZED VIEW w IN CLUSTER c AS {VIEW}")
    con.execute(
        "CREATE MATERIALIZED VIEW m IN CLUSTER c AS SELECT a, max(b) AS b FROM t GROUP BY a"
    )
    con.execute("SET statement_timeout = '10 min'")
    serving = run("serve-replicas", "--cluster", "c")
    until(con, online("r1", "r2"))
    oracle = duckdb.connect()
    oracle.execute("CREATE TABLE t (a int, b int)")
    oracle.execute("INSERT INTO t VALUES (1, 1), (2, 2)")
    rng, killed = random.Random(17), 0
    next_kill = time.monotonic() + 3.0
    while killed < 6:
        a, b = rng.randrange(20), rng.randrange(1000)
        for one in (con, oracle):
            one.execute(f"INSERT INTO t VALUES ({a}, {b}), ({a + 1}, {b})")
            if b % 5 == 0:
                one.execute(f"DELETE FROM t WHERE a = {a}")
        for view, query in (("w", VIEW), ("m", "SELECT a, max(b) AS b FROM t GROUP BY a")):
            assert rows(con, f"SELECT * FROM {view}") == sorted(oracle.execute(query).fetchall())
        if time.monotonic() >= next_kill:
            next_kill = time.monotonic() + 3.0
            killed += _signal_one(con, rng)
    until(con, online("r1", "r2"))
    serving.signal(signal.SIGTERM)
    code, _, errors = serving.end()
    assert (code, errors) == (0, "")


def _signal_one(con: mzsql.Connection, rng: random.Random) -> bool:
    """Kill the process of one replica, or stop and wake it; whether it was there and the other one is, too."""
    state = con.coordinator.env.sync()
    pids = [
        int(one.process.who.split()[1])
        for one in state.replicas.values()
        if one.process is not None
    ]
    if not online("r1", "r2")(statuses(con)):
        return False
    pid = rng.choice(pids)
    if rng.random() < 0.7:
        os.kill(pid, signal.SIGKILL)
    else:
        stop(pid, con)
        con.execute("INSERT INTO t VALUES (99, 1)")
        con.execute("SELECT * FROM w").fetchall()
        con.execute("DELETE FROM t WHERE a = 99")
        os.kill(pid, signal.SIGCONT)
    return True
