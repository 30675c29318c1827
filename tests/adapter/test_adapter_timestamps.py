"""Timestamp selection: the pure choice against a plain statement of its rules, and what it costs and waits for in an environment."""

from __future__ import annotations

import json
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from commit_kit import opened
from hypothesis import given
from hypothesis import strategies as st

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment import opening
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.planning.explain_timestamp import explained
from mzsql.adapter.planning.timestamps import (
    Determination,
    Question,
    SourceFrontiers,
    determine,
    needs_oracle,
)
from mzsql.adapter.session.session import Session
from mzsql.location import blob_around, consensus_around, open_blob, open_consensus, open_oracle
from mzsql.repr.errors import InvalidParameter, NotReadable, QueryCanceled
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import Interrupt, running

T = TypeVar("T")

times = st.integers(0, 20)
sources = st.lists(
    st.builds(
        SourceFrontiers,
        st.sampled_from([GlobalId("u1"), GlobalId("u2")]),
        times,
        st.none() | times,
    ),
    max_size=3,
).map(tuple)
questions = st.builds(
    Question,
    st.sampled_from(["strict serializable", "strong session serializable", "serializable"]),
    sources,
    times,
    st.booleans(),
    st.none() | times,
    st.booleans(),
    times,
    st.booleans(),
    st.none() | times,
)


@given(questions)
def test_the_choice_is_the_rules(question: Question) -> None:
    sinces = [one.since for one in question.sources if one.since is not None]
    uppers = [one.upper for one in question.sources if one.upper is not None]
    since = max(sinces, default=0)
    if not question.sources and not question.time_dependent:
        assert determine(question).timestamp is None
        return
    if question.as_of is not None and question.as_of < since and not question.at_least:
        with pytest.raises(InvalidParameter, match=r"Timestamp \(\d+\) is not valid for all"):
            determine(question)
        return
    done = determine(question)
    assert done.timestamp is not None
    oracle = question.oracle_read_ts
    assert oracle is not None
    if question.as_of is not None:
        assert done.timestamp == max(question.as_of, since)
    elif question.linear or question.isolation == "strict serializable" or not question.sources:
        assert done.timestamp == max(oracle, since)
    else:
        complete = min(uppers) - 1 if uppers else oracle
        if question.isolation == "serializable":
            # What is complete ahead of time, as between refreshes, is read at a time that has come.
            ahead = question.present is not None and max(complete, 0) > question.present
            assert done.timestamp == max(min(complete, oracle) if ahead else complete, since, 0)
        else:
            # Neither beyond the oracle nor before what the session has seen, and never below since.
            assert done.timestamp >= max(question.session_ts, since)
            assert done.timestamp <= max(oracle, question.session_ts, since)
            assert done.timestamp <= max(complete, question.session_ts, since)
    waits = question.linear or question.isolation != "serializable"
    assert done.held_back == (done.timestamp > oracle and waits)


@given(questions)
def test_the_oracle_is_asked_where_it_decides(question: Question) -> None:
    if needs_oracle(question):
        return
    try:
        one = determine(msgspec.structs.replace(question, oracle_read_ts=0)).timestamp
    except InvalidParameter:
        return
    other = determine(msgspec.structs.replace(question, oracle_read_ts=10**6)).timestamp
    assert one == other


class Counting:
    """Opens backends as the registry does, and counts what is asked of them."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def _around(self, operation: str, act: Callable[[], T]) -> T:
        self.counts[operation] += 1
        return act()

    def open_blob(self, url: str) -> Any:
        return blob_around(open_blob(url), self._around)

    def open_consensus(self, url: str) -> Any:
        return consensus_around(open_consensus(url), self._around)

    def open_oracle(self, *args: Any, **kwargs: Any) -> Any:
        oracle, counts = open_oracle(*args, **kwargs), self.counts

        class Counted:
            def __getattr__(self, name: str) -> Any:
                counts[name] += 1
                return getattr(oracle, name)

        return Counted()


@pytest.fixture
def coordinator(tmp_env: Path) -> Iterator[Coordinator]:
    env = Environment.open(locate(tmp_env))
    made = Coordinator(env, spark=None, lead=False)
    yield made
    made.close()
    env.close()


def rows(coordinator: Coordinator, session: Session, text: str) -> list[dict[str, Any]]:
    result = coordinator.execute(session, text)[-1]
    return [] if result.rows is None else result.rows.to_pylist()


def test_reads_of_a_quiet_environment_write_nothing(
    tmp_env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = Counting()
    monkeypatch.setattr(opening, "default_registry", lambda: counting)
    monkeypatch.setattr("mzsql.oracle.open_bare_oracle", counting.open_oracle)
    env = Environment.open(locate(tmp_env))
    coordinator = Coordinator(env, spark=None, lead=False)
    session = Session()
    try:
        rows(coordinator, session, "CREATE TABLE t (a int)")
        rows(coordinator, session, "INSERT INTO t VALUES (1)")
        assert rows(coordinator, session, "SELECT * FROM t") == [{"a": 1}]
        upper = env.wal.state.upper
        counting.counts.clear()
        for _ in range(20):
            assert rows(coordinator, session, "SELECT * FROM t") == [{"a": 1}]
        assert counting.counts["compare_and_set"] == 0
        assert counting.counts["set"] == 0
        assert env.wal.state.upper == upper
        # Each statement asks the catalog and the oracle, and nothing else.
        assert counting.counts["read_ts"] == 20
        assert counting.counts.total() <= 45
    finally:
        coordinator.close()
        env.close()


def test_fresh_timestamps_hold_what_was_acknowledged_anywhere(tmp_env: Path) -> None:
    one, other = Environment.open(locate(tmp_env)), Environment.open(locate(tmp_env))
    a, b = Coordinator(one, spark=None, lead=False), Coordinator(other, spark=None, lead=False)
    try:
        session = Session()
        rows(a, session, "CREATE TABLE t (a int)")
        last = 0
        for i in range(20):
            writer, reader = (a, b) if i % 2 else (b, a)
            rows(writer, session, f"INSERT INTO t VALUES ({i})")
            ts = reader.env.fresh_timestamp()
            assert ts >= last
            last = ts
            assert len(rows(reader, Session(), "SELECT * FROM t")) == i + 1
            # An oracle ahead of the log: reads stay at what the log has complete, and see everything.
            one.oracle.apply_write(one.oracle.write_ts())
            assert reader.env.fresh_timestamp() == ts
    finally:
        for coordinator in (a, b):
            coordinator.close()
            coordinator.env.close()


def test_as_of(coordinator: Coordinator) -> None:
    session = Session()
    rows(coordinator, session, "CREATE TABLE t (a int)")
    rows(coordinator, session, "INSERT INTO t VALUES (1)")
    before = coordinator.env.fresh_timestamp()
    rows(coordinator, session, "INSERT INTO t VALUES (2)")
    assert rows(coordinator, session, f"SELECT * FROM t AS OF {before}") == [{"a": 1}]
    with pytest.raises(InvalidParameter, match=r"Timestamp \(1\) is not valid for all inputs"):
        rows(coordinator, session, "SELECT * FROM t AS OF 1")
    assert rows(coordinator, session, "SELECT count(*) FROM t AS OF AT LEAST 1") == [{"count": 0}]
    ahead = coordinator.env.clock.now_ms() + 600
    found = rows(coordinator, session, f"SELECT a FROM t ORDER BY a AS OF {ahead}")
    assert found == [{"a": 1}, {"a": 2}]
    assert coordinator.env.clock.now_ms() >= ahead
    # Nothing can be written at a time that was read at.
    rows(coordinator, session, "INSERT INTO t VALUES (3)")
    assert len(rows(coordinator, session, f"SELECT a FROM t AS OF {ahead}")) == 2
    with pytest.raises(NotReadable, match="ahead of the clock"):
        rows(coordinator, session, f"SELECT a FROM t AS OF {ahead + 10**7}")


@pytest.mark.parametrize(
    ("time_", "message"),
    [
        ("-1", "out of range integral type conversion attempted"),
        ("-1::numeric", "decimal cannot be expressed in target primitive type"),
        ("1.2", "decimal cannot be expressed in target primitive type"),
        ("1E38", "decimal cannot be expressed in target primitive type"),
        ("NULL::numeric", "can't use null as a mz_timestamp for AS OF"),
        ("now()", "cannot call .* in AS OF"),
        ("mz_now()", "cannot call mz_now in AS OF"),
        ("", "Expected a timestamp value after 'AS OF', found EOF"),
    ],
)
def test_bad_times(coordinator: Coordinator, time_: str, message: str) -> None:
    with pytest.raises(Exception, match=message):
        rows(coordinator, Session(), f"SELECT 1 AS OF {time_}")


def test_strong_session_serializable_sees_its_own(coordinator: Coordinator) -> None:
    session = Session()
    session.set("transaction_isolation", ["strong session serializable"])
    rows(coordinator, session, "CREATE TABLE t (a int)")
    for i in range(5):
        rows(coordinator, session, f"INSERT INTO t VALUES ({i})")
        assert len(rows(coordinator, session, "SELECT * FROM t")) == i + 1


def test_views_of_the_moment_are_at_the_querys_time(coordinator: Coordinator) -> None:
    session = Session()
    rows(coordinator, session, "CREATE TABLE t (a int)")
    rows(
        coordinator,
        session,
        "CREATE VIEW v AS SELECT * FROM (VALUES ('joe', 100), ('mike', 101)) AS x (n, t) WHERE mz_now() >= t",
    )
    assert rows(coordinator, session, "SELECT n FROM v AS OF 99") == []
    assert rows(coordinator, session, "SELECT n FROM v AS OF 100") == [{"n": "joe"}]
    assert len(rows(coordinator, session, "SELECT n FROM v")) == 2


def test_explain_timestamp(coordinator: Coordinator) -> None:
    session = Session()
    rows(coordinator, session, "CREATE TABLE t (a int)")
    rows(coordinator, session, "INSERT INTO t VALUES (1)")
    ((text,),) = [
        row.values() for row in rows(coordinator, session, "EXPLAIN TIMESTAMP FOR SELECT * FROM t")
    ]
    ts = coordinator.env.fresh_timestamp()
    assert re.search(rf"^                query timestamp: {ts} \(\d{{4}}-", text)
    assert f"          oracle read timestamp: {ts} " in text
    assert f"                          upper:[{ts + 1} " in text
    assert "        can respond immediately: true\n" in text
    assert "                       timeline: Some(EpochMilliseconds)\n" in text
    assert "\nsource materialize.public.t (u1, storage):\n                  read frontier:[" in text
    ((text,),) = [
        row.values()
        for row in rows(coordinator, session, "EXPLAIN TIMESTAMP AS JSON FOR SELECT * FROM t")
    ]
    parsed = json.loads(text)
    assert parsed["determination"]["timestamp_context"]["TimelineTimestamp"]["chosen_ts"] == ts
    assert parsed["respond_immediately"] is True


def test_explained_without_a_time() -> None:
    done = Determination(None, None, "strict serializable", 0, None, None, ())
    assert "timeline: None\n" in explained(done, 0, str, "text")


def test_a_transaction_reads_at_one_time_in_one_domain(coordinator: Coordinator) -> None:
    session, other = Session(), Session()
    for name in ("t", "u"):
        rows(coordinator, session, f"CREATE TABLE {name} (a int)")
    rows(coordinator, session, "BEGIN")
    assert rows(coordinator, session, "SELECT * FROM t") == []
    held = [len(one.holds) for one in coordinator.env.collections._open.values()]
    assert held == [1, 1]
    rows(coordinator, other, "INSERT INTO u VALUES (1)")
    rows(coordinator, other, "CREATE TABLE late (a int)")
    assert rows(coordinator, session, "SELECT * FROM u") == []
    with pytest.raises(Exception, match="same timedomain") as refused:
        rows(coordinator, session, "SELECT * FROM late")
    assert '"materialize.public.late"' in str(refused.value)
    rows(coordinator, session, "ROLLBACK")
    assert not any(one.holds for one in coordinator.env.collections._open.values())
    assert rows(coordinator, session, "SELECT * FROM late") == []


def test_holds_keep_since_where_it_is(coordinator: Coordinator) -> None:
    session, reader = Session(), Session()
    rows(coordinator, session, "CREATE TABLE t (a int)")
    rows(coordinator, session, "INSERT INTO t VALUES (1)")
    rows(coordinator, reader, "BEGIN")
    assert len(rows(coordinator, reader, "SELECT * FROM t")) == 1
    (gid,) = coordinator.env.collections.ids()[-1:]
    for i in range(5):
        rows(coordinator, session, f"INSERT INTO t VALUES ({i})")
        # Everything that nobody holds is given up, whatever the retention window.
        coordinator.env.collections.release_history(coordinator.env.fresh_timestamp())
        assert len(rows(coordinator, reader, "SELECT * FROM t WHERE a > -1")) == 1
    held = coordinator.env.collections.since(gid)
    rows(coordinator, reader, "COMMIT")
    coordinator.env.collections.release_history(coordinator.env.fresh_timestamp())
    after = coordinator.env.collections.since(gid)
    assert held is not None
    assert after is not None
    assert after > held


def _move_on(coordinator: Coordinator) -> None:
    """Another session writes to t and u, and everything that nobody holds is given up, whatever the retention window."""
    other = Session()
    for _ in range(2):
        rows(coordinator, other, "INSERT INTO t VALUES (10)")
        rows(coordinator, other, "INSERT INTO u VALUES (20)")
        for name in ("t", "u"):
            rows(coordinator, other, f"SELECT * FROM {name}")
        coordinator.env.collections.release_history(coordinator.env.fresh_timestamp())


@pytest.mark.parametrize(
    ("first", "then"),
    [
        ("SELECT mz_now()", "SELECT * FROM u"),
        ("INSERT INTO t SELECT a + 1 FROM t", "INSERT INTO t SELECT a FROM u"),
        ("DELETE FROM t WHERE a < 0", "DELETE FROM t WHERE a IN (SELECT a FROM u)"),
    ],
)
def test_the_time_of_a_transaction_stays_readable_whatever_set_it(
    coordinator: Coordinator, first: str, then: str
) -> None:
    session = Session()
    for name in ("t", "u"):
        rows(coordinator, session, f"CREATE TABLE {name} (a int)")
        rows(coordinator, session, f"INSERT INTO {name} VALUES (1)")
    coordinator.execute(session, "BEGIN")
    coordinator.execute(session, first)
    _move_on(coordinator)
    (result,) = coordinator.execute(session, then)
    assert result.count == 1
    coordinator.execute(session, "ROLLBACK")
    assert not any(one.holds for one in coordinator.env.collections._open.values())


def test_an_update_holds_what_it_reads_before_it_chooses_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the choice and the read another process writes, and this one gives up all history that nobody holds."""
    with opened(tmp_path / "env", tmp_path / "env") as (here, there):
        here.run("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
        here.run("SET transaction_isolation = 'serializable'")
        env = here.env
        fresh, chosen = env.fresh_timestamp, []

        def slow() -> int:
            ts = fresh()
            if not chosen:
                chosen.append(ts)
                for _ in range(2):
                    there.run("INSERT INTO t VALUES (10)")
                    assert (10,) in here.rows("SELECT a FROM t", Session())
                    env.collections.release_history(fresh())
            return ts

        monkeypatch.setattr(env, "fresh_timestamp", slow)
        assert here.run("UPDATE t SET a = a + 1")[0].tag == "UPDATE 3"
        assert chosen
        assert here.rows("SELECT a FROM t") == [(2,), (11,), (11,)]


def test_a_time_beyond_the_statements_is_refused(coordinator: Coordinator) -> None:
    session = Session()
    rows(coordinator, session, "CREATE TABLE t (a int)")
    rows(coordinator, session, "INSERT INTO t VALUES (1)")
    rows(coordinator, session, "SET statement_timeout = '10s'")
    ahead = coordinator.env.clock.now_ms() + 100_000
    with pytest.raises(NotReadable, match="ahead of the clock"):
        rows(coordinator, session, f"SELECT * FROM t AS OF {ahead}")


def test_a_wait_for_a_time_ends_with_its_statement(coordinator: Coordinator) -> None:
    session = Session()
    rows(coordinator, session, "CREATE TABLE t (a int)")
    rows(coordinator, session, "INSERT INTO t VALUES (1)")
    ahead = coordinator.env.clock.now_ms() + 50_000
    interrupt, failures = Interrupt(), []

    def read() -> None:
        try:
            with running(interrupt):
                coordinator._queries.timestamps.hold_back(ahead, 60.0)
        except QueryCanceled as canceled:
            failures.append(str(canceled))

    thread = threading.Thread(target=read)
    thread.start()
    interrupt.cancel()
    thread.join(30)
    assert not thread.is_alive()
    assert failures == ["canceling statement due to user request"]
