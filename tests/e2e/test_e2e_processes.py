"""Several processes on one environment, threads in one, and processes that die in the middle."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import mzsql
from mzsql.adapter import reader
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.planning.timestamps import Timestamps
from mzsql.repr.errors import UndefinedTable
from mzsql.storage import TableShard, WriteAheadLog


@pytest.fixture
def con(env: str) -> Iterator[mzsql.Connection]:
    connection = mzsql.connect(env)
    yield connection
    connection.close()


def child(env: str, body: str) -> subprocess.Popen[str]:
    program = f"import mzsql, sys, time\ncon = mzsql.connect({env!r})\n" + textwrap.dedent(body)
    return subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> str:
    out, err = process.communicate(timeout=500)
    assert process.returncode == 0, err
    return out


def test_what_one_process_has_done_another_sees_at_its_next_statement(
    env: str, con: mzsql.Connection
) -> None:
    con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    other = child(
        env,
        """
        print(con.execute("SELECT * FROM t").fetchall(), flush=True)
        con.execute("CREATE TABLE made (x text); INSERT INTO made VALUES ('there'); INSERT INTO t VALUES (2)")
        print("done", flush=True)
        sys.stdin.readline()
        print(con.execute("SELECT a FROM t ORDER BY a").fetchall())
        try:
            con.execute("SELECT * FROM made")
        except mzsql.ProgrammingError as e:
            print(e)
        con.close()
        """,
    )
    assert other.stdout is not None
    assert other.stdin is not None
    assert other.stdout.readline() == "[(1,)]\n"
    assert other.stdout.readline() == "done\n"
    assert con.execute("SELECT * FROM made").fetchall() == [("there",)]
    assert con.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
    con.execute("DELETE FROM t WHERE a = 1; DROP TABLE made")
    other.stdin.write("\n")
    other.stdin.flush()
    assert finish(other) == "[(2,)]\nunknown catalog item 'made'\n"


@pytest.mark.long
def test_no_increment_of_two_processes_is_lost(env: str, con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE n (v int); INSERT INTO n VALUES (0)")
    body = """
    for _ in range(10):
        con.execute("UPDATE n SET v = v + 1")
    con.close()
    """
    others = [child(env, body) for _ in range(2)]
    for _ in range(10):
        con.execute("UPDATE n SET v = v + 1")
    for other in others:
        finish(other)
    assert con.execute("SELECT v FROM n").fetchall() == [(30,)]


def test_threads_share_appends(env: str, con: mzsql.Connection) -> None:
    con.execute("CREATE TABLE t (a int)")
    barrier = threading.Barrier(8)
    failures: list[BaseException] = []

    def insert(who: int) -> None:
        try:
            with mzsql.connect(env) as mine:
                barrier.wait()
                for i in range(5):
                    mine.execute("INSERT INTO t VALUES (%s)", [who * 100 + i])
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=insert, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert con.execute("SELECT count(*), count(DISTINCT a) FROM t").fetchall() == [(40, 40)]
    commits = con.coordinator.commits
    assert commits.commits == 40
    assert commits.appends < 40


class Crash(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("point", ["before the append", "after the append", "while reading"])
def test_a_crash_around_the_commit_leaves_all_or_nothing(
    env: str, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE t (a int); CREATE TABLE s (a int); INSERT INTO t VALUES (0)")
        con.execute("SELECT * FROM t")
        with monkeypatch.context() as dying:
            if point == "while reading":
                dying.setattr(TableShard, "take", _die)
            else:
                dying.setattr(WriteAheadLog, "commit", _dying_commit(point))
            # What dies around the append is the thread that commits: its sessions hear that the outcome is not known.
            told = Crash if point == "while reading" else mzsql.OperationalError
            with pytest.raises(told):
                con.execute(
                    "BEGIN; INSERT INTO t VALUES (1); INSERT INTO s VALUES (1); COMMIT; SELECT * FROM t"
                )
        # Another process comes while the first has not cleaned anything up.
        survivor = Environment.open(locate(env))
        survivor.close()
        expected = [(0,)] if point == "before the append" else [(0,), (1,)]
        out = finish(
            child(
                env,
                """
                t = con.execute("SELECT a FROM t ORDER BY a").fetchall()
                print(t, con.execute("SELECT count(*) FROM s").fetchall())
                """,
            )
        )
        assert out == f"{expected} [({len(expected) - 1},)]\n"


def _die(*_: object) -> None:
    raise Crash


def _dying_commit(point: str):
    real = WriteAheadLog.commit

    def commit(self: WriteAheadLog, ts: int, writes: object, **rest: object) -> object:
        if not writes:
            return real(self, ts, writes, **rest)  # type: ignore[arg-type]
        if point == "after the append":
            real(self, ts, writes, **rest)  # type: ignore[arg-type]
        raise Crash

    return commit


def test_a_process_killed_while_it_commits_leaves_whole_transactions(
    env: str, con: mzsql.Connection
) -> None:
    con.execute("CREATE TABLE t (a int); CREATE TABLE s (a int)")
    other = child(
        env,
        """
        for i in range(100000):
            con.execute("BEGIN")
            con.execute("INSERT INTO t VALUES (%s)", [i])
            con.execute("INSERT INTO s VALUES (%s)", [i])
            con.execute("COMMIT")
            print(i, flush=True)
        """,
    )
    assert other.stdout is not None
    acknowledged = -1
    for line in other.stdout:
        acknowledged = int(line)
        if acknowledged >= 5:
            break
    other.send_signal(signal.SIGKILL)
    rest = [int(line) for line in other.stdout]
    other.wait()
    acknowledged = rest[-1] if rest else acknowledged
    found = [row[0] for row in con.execute("SELECT t.a FROM t JOIN s ON t.a = s.a ORDER BY t.a")]
    assert found == list(range(len(found)))
    assert acknowledged + 1 <= len(found) <= acknowledged + 2
    assert con.execute("SELECT count(*) FROM t").fetchone() == (len(found),)
    assert con.execute("SELECT count(*) FROM s").fetchone() == (len(found),)


def test_a_table_dropped_by_another_process_takes_no_writes(
    env: str, con: mzsql.Connection
) -> None:
    con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    con.execute("BEGIN; INSERT INTO t VALUES (2)")
    finish(child(env, 'con.execute("DROP TABLE t"); con.close()'))
    with pytest.raises(
        mzsql.ProgrammingError,
        match=r"unknown catalog item 'u1'(.|\n)*was dropped while the transaction",
    ):
        con.execute("COMMIT")


@pytest.mark.parametrize("warm", [False, True])
def test_a_query_keeps_what_it_was_planned_on_or_says_what_was_dropped(
    env: str, con: mzsql.Connection, monkeypatch: pytest.MonkeyPatch, warm: bool
) -> None:
    con.execute("CREATE TABLE t (a int, b text); CREATE TABLE s (a int)")
    con.execute("INSERT INTO t VALUES (1, 'x'); INSERT INTO s VALUES (1)")
    with mzsql.connect(env, deploy_generation=0) as other:
        if warm:
            assert other.execute("SELECT * FROM t").fetchall() == [(1, "x")]
        collections = other.coordinator.env.collections
        gid = next(i.id for i in other.coordinator.env.sync().items.values() if i.name == "t")
        at = other.coordinator.env.fresh_timestamp()
        dropped: list[bool] = []
        real = Timestamps.determine

        def determine(self: Timestamps, *args: Any, **rest: Any) -> Any:
            determined = real(self, *args, **rest)
            if not dropped:
                dropped.append(True)
                con.execute("DROP TABLE t")
            return determined

        monkeypatch.setattr(Timestamps, "determine", determine)
        try:
            answer = str(other.execute("SELECT count(*), max(b) FROM t").fetchall())
        except mzsql.ProgrammingError as error:
            answer = str(error)
        told = r"\[\(1, 'x'\)\]|relation \"materialize.public.t\" was dropped|unknown catalog"
        assert re.match(f".*({told})", answer), answer
        assert dropped
        with pytest.raises(mzsql.ProgrammingError, match="unknown catalog item 't'"):
            other.execute("SELECT * FROM t")
        with pytest.raises(UndefinedTable, match=r'relation "materialize\.public\.t" was dropped'):
            collections.snapshot(gid, at)
        assert other.execute("SELECT * FROM s").fetchall() == [(1,)]


class TestReader:
    def test_it_reads_without_leading_or_writing(self, env: str, con: mzsql.Connection) -> None:
        con.execute("CREATE TABLE t (a int, b text); INSERT INTO t VALUES (1, 'x'), (1, 'x')")
        con.execute("CREATE VIEW v AS SELECT a + 1 AS c FROM t")
        with reader.open_read_only(env) as reading:
            table = reading.relation("public.t")
            at = reading.fresh_timestamp()
            assert reading.rows(table).to_pylist() == [{"a": 1, "b": "x"}] * 2
            assert reading.rows(reading.relation("v")).to_pylist() == [{"c": 2}, {"c": 2}]
            named = reading.rows(reading.relation("mz_catalog.mz_tables"), columns=["name"])
            assert named.to_pylist() == [{"name": "t"}]
            con.execute("DELETE FROM t")
            after = reading.fresh_timestamp()
            assert after > at
            changes = reading.changes(table, at + 1, after + 1)
            assert changes.select(["a", "b", "mz_diff"]).to_pylist() in (
                [{"a": 1, "b": "x", "mz_diff": -2}],
                [{"a": 1, "b": "x", "mz_diff": -1}] * 2,
            )
            assert reading.rows(table, at).num_rows == 2
            assert {r.full_name for r in reading.relations()} > {
                "public.t",
                "mz_internal.mz_frontiers",
            }

    def test_read_only_connections_refuse_writes(self, env: str, con: mzsql.Connection) -> None:
        con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        with mzsql.connect(env, read_only=True) as reading:
            assert reading.execute("SELECT * FROM t").fetchall() == [(1,)]
            for statement in ("INSERT INTO t VALUES (2)", "CREATE TABLE s (a int)", "DROP TABLE t"):
                with pytest.raises(mzsql.DatabaseError, match="read-only"):
                    reading.execute(statement)


def test_opening_takes_little_and_stops_what_it_started(env: str) -> None:
    mzsql.connect(env).close()
    before = {t.name for t in threading.enumerate()}
    started = time.monotonic()
    mzsql.connect(env).close()
    assert time.monotonic() - started < 30
    assert {t.name for t in threading.enumerate()} <= before
