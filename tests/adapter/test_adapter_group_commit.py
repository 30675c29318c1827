"""Commits of many sessions: how many appends, who is told what, what is in the log afterwards."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from commit_kit import (
    HANG,
    Gate,
    Place,
    around_consensus,
    around_oracle,
    gate_before_appends,
    in_threads,
    opened,
)

from mzsql.adapter.commit import group_commit
from mzsql.adapter.session.session import Session
from mzsql.catalog.commands.items import drop_items
from mzsql.location import Determinate, Indeterminate
from mzsql.oracle.errors import ClockSkew
from mzsql.persist.machine import Shard
from mzsql.repr.errors import (
    CommitOutcomeUnknown,
    QueryCanceled,
    SqlError,
    TransactionError,
    UndefinedTable,
)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with opened(tmp_path / "env") as (one,):
        yield one


def _wait_for(done: Callable[[], bool]) -> None:
    end = time.monotonic() + HANG
    while not done():
        assert time.monotonic() < end
        time.sleep(0.002)


def _started(act: Callable[[], object]) -> Callable[[], object]:
    """Begin an act on a thread; waits for what it returned or raised."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(act())
        except BaseException as failure:
            found.append(failure)

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> object:
        thread.join(HANG)
        assert found
        return found[0]

    return result


# --- how many -------------------------------------------------------------------------------------


def test_sessions_that_insert_at_once_share_appends(place: Place) -> None:
    place.run("CREATE TABLE t (a int, b int)")
    commits = place.coordinator.commits
    appends = commits.appends

    def session(n: int) -> Callable[[], None]:
        mine = Session()

        def inserts() -> None:
            for i in range(10):
                place.run("INSERT INTO t VALUES (%s, %s)", mine, n, i)

        return inserts

    assert in_threads(*(session(n) for n in range(64))) == [None] * 64
    assert commits.commits == 640
    assert (commits.appends - appends) * 20 <= 640
    assert place.rows("SELECT count(*), count(DISTINCT a), sum(b) FROM t") == [(640, 64, 64 * 45)]


def test_all_that_waits_together_becomes_one_batch_of_each_table(place: Place) -> None:
    place.run("CREATE TABLE t (a int); CREATE TABLE u (a int)")
    gate = gate_before_appends(place.env)
    first = _started(lambda: place.run("INSERT INTO t VALUES (0)", Session()))
    assert gate.reached.wait(HANG)
    rest = [
        _started(lambda n=n: place.run(f"INSERT INTO {'tu'[n % 2]} VALUES ({n})", Session()))
        for n in range(1, 21)
    ]
    _wait_for(lambda: len(place.coordinator.commits._queue) == 20)
    before = place.coordinator.commits.appends
    gate.open()
    assert not [r for r in (first(), *(one() for one in rest)) if isinstance(r, BaseException)]
    assert place.coordinator.commits.appends == before + 2
    live = place.env.wal.follow().live
    assert sorted(len(entries) for entries in live.values()) == [1, 2]
    assert place.rows("SELECT count(*) FROM t UNION ALL SELECT count(*) FROM u") == [(10,), (11,)]


def test_an_insert_of_values_asks_the_oracle_for_no_read_timestamp(place: Place) -> None:
    place.run("CREATE TABLE t (a int, b text DEFAULT 'x', c int DEFAULT 1 + 1)")
    asked: list[str] = []

    def around(operation: str, act: Callable[[], Any]) -> Any:
        asked.append(operation)
        return act()

    around_oracle(place.env, around)
    place.run("INSERT INTO t (a) VALUES (1), (2)")
    assert asked == ["write_ts", "adopt"]
    assert place.rows("SELECT * FROM t") == [(1, "x", 2), (2, "x", 2)]


def test_threads_that_look_at_the_catalog_at_once_share_a_look(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []
    asking: list[Shard] = []
    fetch = Shard._in_turn

    def counted(own: Shard, *args: Any) -> Any:
        asking.append(own)
        return fetch(own, *args)

    gate = Gate()

    def around(operation: str, act: Callable[[], Any]) -> Any:
        if operation in ("head", "scan"):
            looks.append(operation)
            return gate.before(act)()
        return act()

    around_consensus(place.env, around)
    gate.shut()
    first = _started(place.env.sync)
    assert gate.reached.wait(HANG)
    monkeypatch.setattr(Shard, "_in_turn", counted)
    before = len(looks)
    rest = [_started(place.env.sync) for _ in range(15)]
    _wait_for(lambda: max(map(asking.count, asking), default=0) == 15)
    gate.open()
    for one in (first, *rest):
        assert not isinstance(one(), BaseException)
    # One look more, of those that came while the first was under way: its head, and what is new.
    assert len(looks) - before <= 5


# --- who is told what -----------------------------------------------------------------------------


def test_a_write_is_visible_to_whoever_asks_after_its_answer(tmp_path: Path) -> None:
    with opened(tmp_path / "env", tmp_path / "env") as (here, there):
        here.run("CREATE TABLE t (a int)")
        for i in range(20):
            one, other = (here, there) if i % 2 else (there, here)
            one.run("INSERT INTO t VALUES (1)")
            assert other.rows("SELECT count(*) FROM t") == [(i + 1,)]


def test_a_statement_whose_time_is_over_in_the_queue_was_not_carried_out(place: Place) -> None:
    place.run("CREATE TABLE t (a int)")
    gate = gate_before_appends(place.env)
    first = _started(lambda: place.run("INSERT INTO t VALUES (1)", Session()))
    assert gate.reached.wait(HANG)
    hasty = Session()
    place.run("SET statement_timeout = '50 ms'", hasty)
    with pytest.raises(QueryCanceled, match="due to statement timeout"):
        place.run("INSERT INTO t VALUES (2)", hasty)
    cancelled = Session()
    second = _started(lambda: place.run("INSERT INTO t VALUES (3)", cancelled))
    _wait_for(lambda: len(place.coordinator.commits._queue) == 1)
    cancelled.cancel()
    failure = second()
    assert isinstance(failure, QueryCanceled)
    assert failure.message == "canceling statement due to user request"
    gate.open()
    assert not isinstance(first(), BaseException)
    assert place.rows("SELECT a FROM t") == [(1,)]
    place.run("RESET statement_timeout; INSERT INTO t VALUES (4)", hasty)


def test_a_statement_whose_time_is_over_during_the_append_is_told_that_nobody_knows(
    place: Place,
) -> None:
    place.run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    gate = gate_before_appends(place.env)
    hasty = Session()
    for limit in (50 * 4**n for n in range(6)):
        place.run(f"SET statement_timeout = '{limit} ms'", hasty)
        with pytest.raises((CommitOutcomeUnknown, QueryCanceled)) as raised:
            place.run("INSERT INTO t VALUES (2)", hasty)
        # A busy machine may take longer to get to the append.
        if isinstance(raised.value, CommitOutcomeUnknown) or gate.reached.is_set():
            break
    assert isinstance(raised.value, CommitOutcomeUnknown)
    assert "while its commit was under way" in str(raised.value)
    assert raised.value.sqlstate == "40003"
    gate.open()
    place.run("INSERT INTO t VALUES (3)")
    assert place.rows("SELECT a FROM t") == [(1,), (2,), (3,)]


def _press_ctrl_c() -> None:
    main = threading.main_thread().ident
    assert main is not None
    signal.pthread_kill(main, signal.SIGINT)


def test_ctrl_c_ends_only_the_statement_of_its_own_session(place: Place) -> None:
    place.run("CREATE TABLE t (a int)")
    gate = gate_before_appends(place.env)
    first = _started(lambda: place.run("INSERT INTO t VALUES (1)", Session()))
    assert gate.reached.wait(HANG)
    others = [
        _started(lambda n=n: place.run(f"INSERT INTO t VALUES ({n})", Session())) for n in (2, 3)
    ]
    _wait_for(lambda: len(place.coordinator.commits._queue) == 2)

    def press() -> None:
        _wait_for(lambda: len(place.coordinator.commits._queue) == 3)
        _press_ctrl_c()

    ctrl_c = threading.Thread(target=press)
    ctrl_c.start()
    with pytest.raises(KeyboardInterrupt):
        place.run("INSERT INTO t VALUES (9)")
    ctrl_c.join()
    gate.open()
    assert not [r for r in (first(), *(o() for o in others)) if isinstance(r, BaseException)]
    assert place.rows("SELECT a FROM t") == [(1,), (2,), (3,)]


def test_ctrl_c_during_the_append_tells_that_it_was_committed(place: Place) -> None:
    place.run("CREATE TABLE t (a int)")
    gate = gate_before_appends(place.env)
    came = threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.set()
        signal.default_int_handler(number, frame)

    def press() -> None:
        assert gate.reached.wait(HANG)
        _press_ctrl_c()
        assert came.wait(HANG)
        gate.open()

    ctrl_c = threading.Thread(target=press)
    handler = signal.signal(signal.SIGINT, interrupt)
    try:
        ctrl_c.start()
        with pytest.raises(KeyboardInterrupt) as raised:
            place.run("INSERT INTO t VALUES (1)")
        ctrl_c.join()
    finally:
        signal.signal(signal.SIGINT, handler)
    assert "committed at" in raised.value.__notes__[0]
    assert place.rows("SELECT a FROM t") == [(1,)]


def test_one_session_s_bad_row_fails_no_other(place: Place) -> None:
    place.run("CREATE TABLE t (a int NOT NULL)")
    found = in_threads(
        lambda: place.run("INSERT INTO t VALUES (1)", Session()),
        lambda: place.run("INSERT INTO t VALUES (NULL)", Session()),
        lambda: place.run("INSERT INTO t VALUES (1 / 0)", Session()),
        lambda: place.run("INSERT INTO t VALUES (2)", Session()),
    )
    assert [isinstance(one, SqlError) for one in found] == [False, True, True, False]
    assert place.rows("SELECT a FROM t") == [(1,), (2,)]


# --- backends that fail ---------------------------------------------------------------------------


class Failing:
    """Consensus whose compare_and_set of the log fails so often: before the act, or after it."""

    def __init__(self) -> None:
        self.times = 0
        self.acts = True

    def __call__(self, operation: str, act: Callable[[], Any]) -> Any:
        if operation != "compare_and_set" or not self.times:
            return act()
        self.times -= 1
        if self.acts:
            act()
        raise Indeterminate("the connection was lost")


@pytest.mark.parametrize("acts", [True, False])
@pytest.mark.parametrize("times", [1, 3])
def test_an_append_without_an_answer_is_looked_up_before_anybody_is_told(
    place: Place, acts: bool, times: int
) -> None:
    place.run("CREATE TABLE t (a int)")
    failing = Failing()
    around_consensus(place.env, failing)
    failing.times, failing.acts = times, acts
    place.run("INSERT INTO t VALUES (1)")
    assert place.rows("SELECT a FROM t") == [(1,)]


@pytest.mark.parametrize("acts", [True, False])
def test_a_doubt_that_outlasts_all_retries_is_settled_from_the_log(
    place: Place, acts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.run("CREATE TABLE t (a int); INSERT INTO t VALUES (0)")
    wal = place.env.wal
    writer = wal._writer
    append = writer.compare_and_append

    def doubtful(*args: Any, **more: Any) -> None:
        monkeypatch.setattr(writer, "compare_and_append", append)
        if acts:
            append(*args, **more)
        raise Indeterminate("not confirmed, it may have been committed")

    monkeypatch.setattr(writer, "compare_and_append", doubtful)
    if acts:
        place.run("INSERT INTO t VALUES (1)")
    else:
        with pytest.raises(Determinate, match="nothing was written"):
            place.run("INSERT INTO t VALUES (1)")
    assert place.rows("SELECT a FROM t") == ([(0,), (1,)] if acts else [(0,)])
    place.run("INSERT INTO t VALUES (2)")
    assert place.rows("SELECT count(*) FROM t") == [(3 if acts else 2,)]


def test_an_oracle_that_fails_after_the_append_is_asked_again(place: Place) -> None:
    place.run("CREATE TABLE t (a int)")
    left = [2]

    def around(operation: str, act: Callable[[], Any]) -> Any:
        if operation == "adopt" and left[0]:
            left[0] -= 1
            raise Determinate("the oracle is away")
        return act()

    around_oracle(place.env, around)
    place.run("INSERT INTO t VALUES (1)")
    assert left == [0]
    assert place.rows("SELECT a FROM t") == [(1,)]


@pytest.mark.parametrize("error", [Determinate("it is away"), ClockSkew("it refuses")])
def test_an_oracle_that_refuses_or_is_away_for_long_is_told_of(
    place: Place, monkeypatch: pytest.MonkeyPatch, error: SqlError
) -> None:
    place.run("CREATE TABLE t (a int)")
    if isinstance(error, Determinate):
        monkeypatch.setattr(group_commit, "_TELL_SECONDS", -1.0)
    left = [3]

    def around(operation: str, act: Callable[[], Any]) -> Any:
        if operation == "adopt" and left[0]:
            left[0] -= 1
            raise error
        return act()

    around_oracle(place.env, around)
    with pytest.raises(CommitOutcomeUnknown, match=rf"committed at (.|\n)*{error.message}"):
        place.run("INSERT INTO t VALUES (1)")
    assert left == [2]
    left[0] = 0
    place.run("INSERT INTO t VALUES (2)")
    assert place.rows("SELECT a FROM t") == [(1,), (2,)]


def test_an_oracle_that_fails_before_the_append_fails_the_write_alone(place: Place) -> None:
    place.run("CREATE TABLE t (a int)")
    left = [1]

    def around(operation: str, act: Callable[[], Any]) -> Any:
        if operation == "write_ts" and left[0]:
            left[0] -= 1
            raise Determinate("the oracle is away")
        return act()

    around_oracle(place.env, around)
    with pytest.raises(Determinate, match="the oracle is away"):
        place.run("INSERT INTO t VALUES (1)")
    place.run("INSERT INTO t VALUES (2)")
    assert place.rows("SELECT a FROM t") == [(2,)]


def test_a_log_that_is_ahead_of_the_oracle_counts(place: Place) -> None:
    """A writer died between its append and telling the oracle."""
    place.run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    ahead = place.env.wal.state.upper + 5000
    place.env.wal.advance_past(ahead)
    place.run("INSERT INTO t VALUES (2)")
    assert place.env.wal.state.upper > ahead + 1
    assert place.rows("SELECT a FROM t") == [(1,), (2,)]


# --- bugs around the append -----------------------------------------------------------------------


def _two_at_once(place: Place) -> list[object]:
    """What two inserts into t are told that are committed as one group."""
    gate = gate_before_appends(place.env)
    first = _started(lambda: place.run("INSERT INTO t VALUES (0)", Session()))
    assert gate.reached.wait(HANG)
    rest = [
        _started(lambda n=n: place.run(f"INSERT INTO t VALUES ({n})", Session())) for n in (1, 2)
    ]
    _wait_for(lambda: len(place.coordinator.commits._queue) == 2)
    gate.open()
    assert not isinstance(first(), BaseException)
    return [one() for one in rest]


def test_a_bug_of_the_oracle_after_the_append_writes_no_row_twice(place: Place) -> None:
    place.run("CREATE TABLE t (a int)")
    adopted: list[int] = []

    def around(operation: str, act: Callable[[], Any]) -> Any:
        if operation == "adopt":
            adopted.append(1)
            if len(adopted) == 2:
                raise RuntimeError("a bug")
        return act()

    around_oracle(place.env, around)
    for told in _two_at_once(place):
        assert isinstance(told, CommitOutcomeUnknown)
        assert told.message.startswith("committed at")
    place.run("INSERT INTO t VALUES (3)")
    assert place.rows("SELECT a FROM t") == [(0,), (1,), (2,), (3,)]


def test_a_bug_of_the_log_after_the_append_writes_no_row_twice(place: Place) -> None:
    place.run("CREATE TABLE t (a int)")
    commit, calls = place.env.wal.commit, [0]

    def failing(*args: Any, **more: Any) -> Any:
        done = commit(*args, **more)
        calls[0] += 1
        if calls[0] == 2:
            raise RuntimeError("a bug")
        return done

    place.env.wal.commit = failing  # type: ignore[method-assign]
    assert [type(told) for told in _two_at_once(place)] == [CommitOutcomeUnknown] * 2
    place.run("INSERT INTO t VALUES (3)")
    assert place.rows("SELECT a FROM t") == [(0,), (1,), (2,), (3,)]


_MANY = 60_000


def _numbers(where: Path) -> Path:
    csv = where / "numbers.csv"
    csv.write_text("".join(f"{i * 7919 % 1_000_003}\n" for i in range(_MANY)))
    return csv


def test_a_watcher_that_fails_takes_nothing_of_an_acknowledged_write(tmp_path: Path) -> None:
    csv = _numbers(tmp_path)
    with opened(tmp_path / "env", tmp_path / "env") as (here, there):
        here.run("CREATE TABLE t (a int); CREATE TABLE u (a int)")
        here.run(f"COPY t FROM '{csv}' (FORMAT csv)")
        calls: list[int] = []

        def fails() -> None:
            calls.append(1)
            raise RuntimeError("a bug")

        here.env.collections.notify = fails  # type: ignore[method-assign]
        assert here.run("INSERT INTO u SELECT a FROM t")[0].tag == f"INSERT 0 {_MANY}"
        assert calls
        assert there.rows("SELECT count(*) FROM u") == [(_MANY,)]


def test_what_was_copied_stays_while_nobody_knows_whether_it_is_in(tmp_path: Path) -> None:
    csv = _numbers(tmp_path)
    with opened(tmp_path / "env", tmp_path / "env") as (here, there):
        here.run("CREATE TABLE t (a int)")
        commit = here.env.wal.commit

        def failing(*args: Any, **more: Any) -> Any:
            commit(*args, **more)
            raise RuntimeError("a bug")

        here.env.wal.commit = failing  # type: ignore[method-assign]
        with pytest.raises(CommitOutcomeUnknown, match="is not known"):
            here.run(f"COPY t FROM '{csv}' (FORMAT csv)")
        here.env.wal.commit = commit  # type: ignore[method-assign]
        here.env.reach(here.env.wal.follow().upper)
        assert there.rows("SELECT count(*) FROM t") == [(_MANY,)]


def test_an_append_that_turns_out_not_to_be_in_leaves_no_objects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    csv = _numbers(tmp_path)
    with opened(tmp_path / "env") as (place,):
        place.run("CREATE TABLE t (a int); CREATE TABLE u (a int)")
        place.run(f"COPY t FROM '{csv}' (FORMAT csv)")
        assert place.rows("SELECT count(*) FROM t") == [(_MANY,)]
        writer = place.env.wal._writer
        append = writer.compare_and_append
        item = place.env.catalog.state.by_name("public", "u")
        assert item is not None
        table = place.env.collections.table(item.id)
        batch, made = table.batch, []

        def kept(updates: Any) -> Any:
            made.append(batch(updates))
            return made[-1]

        def lost(*_: Any, **__: Any) -> None:
            monkeypatch.setattr(writer, "compare_and_append", append)
            raise Indeterminate("the connection was lost")

        monkeypatch.setattr(table, "batch", kept)
        monkeypatch.setattr(writer, "compare_and_append", lost)
        with pytest.raises(Determinate, match="nothing was written"):
            place.run("INSERT INTO u SELECT a FROM t")
        (one,) = made
        assert one.blob_keys()
        assert [place.env.persist.blob.get(key) for key in one.blob_keys()] == [None]


# --- dropped tables -------------------------------------------------------------------------------


def test_a_drop_in_another_process_fails_what_begins_after_it(tmp_path: Path) -> None:
    with opened(tmp_path / "env", tmp_path / "env") as (here, there):
        here.run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        there.run("INSERT INTO t VALUES (2)")
        here.run("DROP TABLE t")
        with pytest.raises(UndefinedTable):
            there.run("INSERT INTO t VALUES (3)")


@pytest.mark.parametrize("written", [True, False])
def test_a_drop_while_a_transaction_is_open_fails_its_commit(tmp_path: Path, written: bool) -> None:
    with opened(tmp_path / "env", tmp_path / "env") as (here, there):
        here.run("CREATE TABLE t (a int); CREATE TABLE u (a int)")
        if written:
            here.run("INSERT INTO t VALUES (1)")
        there.run("BEGIN; INSERT INTO t VALUES (2); INSERT INTO u VALUES (2)")
        here.run("DROP TABLE t")
        with pytest.raises(UndefinedTable, match="unknown catalog item 'u"):
            there.run("COMMIT")
        assert there.rows("SELECT * FROM u") == []


def _before_appends(place: Place) -> Gate:
    return gate_before_appends(place.env)


def _before_batches(place: Place) -> Gate:
    item = place.env.catalog.state.by_name("public", "t")
    assert item is not None
    table = place.env.collections.table(item.id)
    gate = Gate()
    table.batch = gate.before(table.batch)  # type: ignore[method-assign]
    gate.shut()
    return gate


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize("gate_before", [_before_appends, _before_batches])
def test_a_drop_during_a_commit_leaves_nothing_in_the_log(
    tmp_path: Path, written: bool, gate_before: Callable[[Place], Gate]
) -> None:
    """The insert has looked at the catalog, and stops before its append, or before it writes its rows; then the table is dropped."""
    with opened(tmp_path / "env", tmp_path / "env") as (here, there):
        here.run("CREATE TABLE t (a int)")
        there.run("CREATE TABLE u (a int); INSERT INTO u VALUES (0)")
        if written:
            here.run("INSERT INTO t VALUES (1)")
        gate = gate_before(there)
        late = _started(lambda: there.run("INSERT INTO t VALUES (2)", Session()))
        assert gate.reached.wait(HANG)
        here.run("DROP TABLE t")
        gate.open()
        assert isinstance(late(), UndefinedTable)
        there.run("INSERT INTO u VALUES (1)")
        state = here.env.wal.follow()
        shards = {item.shard for item in here.env.sync().items.values()}
        assert set(state.live) <= shards
        assert state.registered <= shards


def test_what_a_dropper_that_died_left_in_the_log_is_taken_out(tmp_path: Path) -> None:

    with opened(tmp_path / "env") as (place,):
        place.run("CREATE TABLE t (a int); CREATE TABLE u (a int); INSERT INTO t VALUES (1)")
        item = place.env.catalog.state.by_name("public", "t")
        assert item is not None
        place.env.catalog.transact(
            lambda state: (drop_items(state, [item.id], cascade=False), None)
        )
        assert item.shard in place.env.wal.follow().live
        place.run("INSERT INTO u VALUES (1)")
        state = place.env.wal.follow()
        assert item.shard not in state.live
        assert item.shard not in state.registered


def test_a_commit_that_fails_leaves_the_sweep_of_dropped_tables_to_the_next(tmp_path: Path) -> None:

    with opened(tmp_path / "env") as (place,):
        place.run("CREATE TABLE t (a int); CREATE TABLE u (a int); INSERT INTO t VALUES (1)")
        item = place.env.catalog.state.by_name("public", "t")
        assert item is not None
        place.env.catalog.transact(
            lambda state: (drop_items(state, [item.id], cascade=False), None)
        )
        commit = place.env.wal.commit

        def away(*_: Any, **__: Any) -> None:
            raise Determinate("the store is away")

        place.env.wal.commit = away  # type: ignore[assignment,method-assign]
        with pytest.raises(Determinate, match="the store is away"):
            place.run("INSERT INTO u VALUES (1)")
        place.env.wal.commit = commit  # type: ignore[method-assign]
        assert item.shard in place.env.wal.follow().live
        place.run("INSERT INTO u VALUES (2)")
        state = place.env.wal.follow()
        assert item.shard not in state.live
        assert item.shard not in state.registered


# --- read, then write -----------------------------------------------------------------------------


def test_increments_of_one_counter_all_count(place: Place) -> None:
    place.run("CREATE TABLE c (n int); INSERT INTO c VALUES (0)")

    def increments() -> None:
        session = Session()
        for _ in range(5):
            assert place.run("UPDATE c SET n = n + 1", session)[0].tag == "UPDATE 1"

    assert in_threads(*[increments] * 8) == [None] * 8
    assert place.rows("SELECT n FROM c") == [(40,)]


def test_increments_of_two_processes_all_count(tmp_path: Path) -> None:
    with opened(tmp_path / "env", tmp_path / "env") as places:
        places[0].run("CREATE TABLE c (n int); INSERT INTO c VALUES (0)")

        def increments(place: Place) -> None:
            session = Session()
            for _ in range(5):
                place.run("UPDATE c SET n = n + 1", session)

        acts = [lambda place=place: increments(place) for place in (*places, *places)]
        assert in_threads(*acts) == [None] * 4
        assert places[1].rows("SELECT n FROM c") == [(20,)]


def test_of_transactions_that_wait_together_only_one_of_those_in_conflict_commits(
    place: Place,
) -> None:
    place.run("CREATE TABLE c (n int); CREATE TABLE t (a int); INSERT INTO c VALUES (0)")
    sessions = [Session() for _ in range(4)]
    for session in sessions:
        place.run("BEGIN; UPDATE c SET n = n + 1", session)
    gate = gate_before_appends(place.env)
    first = _started(lambda: place.run("INSERT INTO t VALUES (1)", Session()))
    assert gate.reached.wait(HANG)
    rest = [_started(lambda s=s: place.run("COMMIT", s)) for s in sessions]
    blind = _started(lambda: place.run("INSERT INTO c VALUES (100)", Session()))
    _wait_for(lambda: len(place.coordinator.commits._queue) == 5)
    gate.open()
    assert not isinstance(first(), BaseException)
    found = [one() for one in rest]
    assert not isinstance(blind(), BaseException)
    lost = [one for one in found if isinstance(one, TransactionError)]
    assert len(lost) == 3
    assert {one.sqlstate for one in lost} == {"40001"}
    assert place.rows("SELECT n FROM c") == [(1,), (100,)]


def test_an_update_goes_on_while_others_insert_without_end(place: Place) -> None:
    place.run("CREATE TABLE t (a int)")
    stop: list[bool] = []

    def inserts() -> None:
        session = Session()
        while not stop:
            place.run("INSERT INTO t VALUES (1)", session)

    def updates() -> None:
        try:
            session = Session()
            for _ in range(3):
                place.run("UPDATE t SET a = a + 1 WHERE a < 0", session)
                place.run("DELETE FROM t", session)
        finally:
            stop.append(True)

    assert in_threads(inserts, inserts, updates) == [None] * 3


def test_after_close_nothing_is_committed_and_the_thread_is_gone(tmp_path: Path) -> None:
    with opened(tmp_path / "env") as (place,):
        place.run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        commits = place.coordinator.commits
        commits.close()
        commits.close()
        assert commits._thread is not None
        assert not commits._thread.is_alive()
        with pytest.raises(SqlError, match="the environment was closed"):
            place.run("INSERT INTO t VALUES (2)")
