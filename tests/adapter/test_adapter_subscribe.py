"""SUBSCRIBE: what comes out adds up to the query at every time, in time's order, and ends as it should."""

from __future__ import annotations

import gc
import random
import threading
import time
from collections import Counter

import duckdb
import pytest

import mzsql

WAIT = 30.0


@pytest.fixture
def con(tmp_path):
    with mzsql.connect(tmp_path / "env") as connection:
        yield connection


@pytest.fixture
def t(con):
    con.execute("CREATE TABLE t (k int, v int)")
    return con


def names(cursor):
    return [column[0] for column in cursor.description]


def until(cursor, ts):
    """Rows of a SUBSCRIBE … WITH (PROGRESS) until it says that it is complete at `ts`."""
    rows = []
    while True:
        row = cursor.fetchone()
        assert row is not None
        rows.append(row)
        if row[1] and row[0] > ts:
            return rows


def now(con):
    """A time at which everything written before is visible."""
    return con.execute("SELECT count(*) FROM t").timestamp


QUERIES = [
    "SELECT * FROM t",
    "SELECT k + 1, v FROM t WHERE v > 2",
    "SELECT k, count(*), sum(v), max(v) FROM t GROUP BY k",
    "SELECT count(*), min(v) FROM t",
    "SELECT DISTINCT v FROM t",
    "SELECT t.k, t.v, u.v FROM t JOIN u ON t.k = u.k",
    "SELECT t.k, u.v FROM t LEFT JOIN u ON t.k = u.k",
    "SELECT k FROM t EXCEPT ALL SELECT k FROM u",
    "SELECT k, v FROM t WHERE k IN (SELECT k FROM u) UNION ALL SELECT k, v FROM u",
    "SELECT k, v FROM t ORDER BY v, k LIMIT 2",
    "SELECT k, sum(v) FROM (SELECT * FROM t UNION ALL SELECT * FROM u) AS a GROUP BY k HAVING count(*) > 1",
]


class Model:
    """The tables as DuckDB holds them, to answer queries independently."""

    def __init__(self):
        self.duck = duckdb.connect()
        for name in "tu":
            self.duck.execute(f"CREATE TABLE {name} (k int, v int)")

    def answer(self, query):
        return Counter(self.duck.execute(query).fetchall())


def change(rng):
    table = rng.choice("tu")
    kind = rng.randrange(4)
    if kind < 2:
        rows = [
            (rng.randrange(4), rng.choice([None, 0, 1, 5, 7])) for _ in range(rng.randrange(1, 4))
        ]
        values = ", ".join(f"({k}, {'NULL' if v is None else v})" for k, v in rows)
        return f"INSERT INTO {table} VALUES {values}"
    if kind == 2:
        return f"DELETE FROM {table} WHERE k = {rng.randrange(4)}"
    return f"UPDATE {table} SET v = {rng.randrange(9)} WHERE k >= {rng.randrange(4)}"


@pytest.mark.parametrize(
    "seed",
    [
        0,
        pytest.param(1, marks=pytest.mark.long),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 6)),
    ],
)
def test_what_comes_out_adds_up_to_the_query_at_every_time(con, seed, monkeypatch):
    if seed:
        # The state of the dataflows is consolidated whenever it has doubled.
        monkeypatch.setattr("mzsql.compute.replica.dataflows.transient._CONSOLIDATE_ROWS", 1)
        monkeypatch.setattr("mzsql.adapter.subscribe.subscription.STEP_ROWS", seed)
    rng = random.Random(seed)
    model = Model()
    for name in "tu":
        con.execute(f"CREATE TABLE {name} (k int, v int)")

    def apply():
        statement = change(rng)
        con.execute(statement)
        model.duck.execute(statement)

    for _ in range(3):
        apply()
    cursors = {q: con.subscribe(f"SUBSCRIBE ({q}) WITH (PROGRESS)") for q in QUERIES}
    expected = []
    for _ in range(12):
        expected.append((now(con), {q: model.answer(q) for q in QUERIES}))
        apply()
    expected.append((now(con), {q: model.answer(q) for q in QUERIES}))
    for query, cursor in cursors.items():
        rows = until(cursor, expected[-1][0])
        assert [row[0] for row in rows] == sorted(row[0] for row in rows)
        updates = [row for row in rows if not row[1]]
        for ts, answers in expected:
            total = Counter()
            for at, _, diff, *row in updates:
                if at <= ts:
                    total[tuple(row)] += diff
            assert all(diff >= 0 for diff in total.values()), (query, ts)
            assert +total == answers[query], (query, ts)
        cursor.close()
    assert con.coordinator.subscriptions == 0


def test_the_columns_are_materializes(t):
    t.execute("CREATE TABLE w (a int, b int, c int)")
    for text, columns in [
        ("SUBSCRIBE t", "mz_timestamp mz_diff k v"),
        ("SUBSCRIBE TO t WITH (PROGRESS)", "mz_timestamp mz_progressed mz_diff k v"),
        ("SUBSCRIBE t ENVELOPE UPSERT (KEY (v))", "mz_timestamp mz_state v k"),
        (
            "SUBSCRIBE t WITH (PROGRESS) ENVELOPE UPSERT (KEY (k))",
            "mz_timestamp mz_progressed mz_state k v",
        ),
        (
            "SUBSCRIBE w ENVELOPE DEBEZIUM (KEY (c, b))",
            "mz_timestamp mz_state c b before_a after_a",
        ),
        (
            "SUBSCRIBE w ENVELOPE DEBEZIUM (KEY (b))",
            "mz_timestamp mz_state b before_a before_c after_a after_c",
        ),
        ("SUBSCRIBE t WITHIN TIMESTAMP ORDER BY k, mz_diff", "mz_timestamp mz_diff k v"),
        ("SUBSCRIBE (SHOW CLUSTERS)", "mz_timestamp mz_diff name replicas comment"),
    ]:
        with t.subscribe(text) as cursor:
            assert names(cursor) == columns.split(), text


def test_progress_comes_first_at_as_of_and_has_no_data(t):
    t.execute("INSERT INTO t VALUES (1, 2)")
    ts = now(t)
    with t.subscribe(f"SUBSCRIBE t WITH (PROGRESS) AS OF {ts}") as cursor:
        assert cursor.fetchone() == (ts, True, None, None, None)
        assert cursor.fetchone() == (ts, False, 1, 1, 2)
        progress = cursor.fetchone()
        assert progress[1:] == (True, None, None, None)
        assert progress[0] > ts


def test_a_row_that_is_there_twice_has_a_diff_of_two(t):
    t.execute("INSERT INTO t VALUES (1, 2), (1, 2), (3, 4)")
    with t.subscribe("SUBSCRIBE t") as cursor:
        assert [row[1:] for row in cursor.fetchmany(10)] == [(2, 1, 2), (1, 3, 4)]


def test_without_snapshot_only_later_changes_come(t):
    t.execute("INSERT INTO t VALUES (1, 2)")
    with t.subscribe("SUBSCRIBE t WITH (SNAPSHOT = false)") as cursor:
        assert cursor.fetchmany(10, timeout=0.05) == []
        assert not cursor.ended
        t.execute("INSERT INTO t VALUES (3, 4)")
        assert [row[1:] for row in cursor.fetchmany(10, timeout=WAIT)] == [(1, 3, 4)]


def test_up_to_is_exclusive_and_ends_it(t):
    t.execute("INSERT INTO t VALUES (1, 2)")
    first = now(t)
    t.execute("INSERT INTO t VALUES (3, 4)")
    second = now(t)
    with t.subscribe(f"SUBSCRIBE t AS OF {first} UP TO {second + 1}") as cursor:
        rows = cursor.fetchall()
        assert [row[1:] for row in rows] == [(1, 1, 2), (1, 3, 4)]
        assert cursor.ended
    at = int(rows[1][0])
    with t.subscribe(f"SUBSCRIBE t AS OF {first} UP TO {at}") as cursor:
        assert cursor.fetchall() == rows[:1]


def test_up_to_comes_though_nobody_writes(t):
    ts = now(t)
    with t.subscribe(f"SUBSCRIBE t AS OF {ts} UP TO {int(time.time() * 1000) + 200}") as cursor:
        assert cursor.fetchall() == []


def test_as_of_equal_to_up_to_gives_nothing(t):
    t.execute("INSERT INTO t VALUES (1, 2)")
    ts = now(t)
    with t.subscribe(f"SUBSCRIBE t WITH (PROGRESS) AS OF {ts} UP TO {ts}") as cursor:
        assert cursor.fetchall() == []
    assert "guaranteed to be empty" in t.notices[0].message


def test_constants_are_complete_at_once(con):
    with con.subscribe("SUBSCRIBE (VALUES (1, 'a'), (2, 'b'))") as cursor:
        assert [row[1:] for row in cursor.fetchall()] == [(1, 1, "a"), (1, 2, "b")]
        assert cursor.ended


def test_upsert_has_one_row_a_key_and_time(t):
    t.execute("INSERT INTO t VALUES (1, 10), (2, NULL)")
    with t.subscribe("SUBSCRIBE t ENVELOPE UPSERT (KEY (k))") as cursor:
        assert [r[1:] for r in cursor.fetchmany(9)] == [("upsert", 1, 10), ("upsert", 2, None)]
        for statement, row in [
            ("UPDATE t SET v = 11 WHERE k = 1", ("upsert", 1, 11)),
            ("UPDATE t SET v = NULL WHERE k = 1", ("upsert", 1, None)),
            ("DELETE FROM t WHERE k = 1", ("delete", 1, None)),
            ("INSERT INTO t VALUES (7, 1), (7, 2)", ("key_violation", 7, None)),
            ("INSERT INTO t VALUES (8, 1), (8, 1)", ("key_violation", 8, None)),
        ]:
            t.execute(statement)
            assert [r[1:] for r in cursor.fetchmany(9, timeout=WAIT)] == [row], statement


def test_debezium_has_what_was_before_and_after(t):
    t.execute("INSERT INTO t VALUES (1, 10)")
    with t.subscribe("SUBSCRIBE (SELECT k, v FROM t) ENVELOPE DEBEZIUM (KEY (k))") as cursor:
        assert [r[1:] for r in cursor.fetchmany(9)] == [("insert", 1, None, 10)]
        for statement, row in [
            ("UPDATE t SET v = 11 WHERE k = 1", ("upsert", 1, 10, 11)),
            ("UPDATE t SET v = NULL WHERE k = 1", ("upsert", 1, 11, None)),
            ("DELETE FROM t WHERE k = 1", ("delete", 1, None, None)),
            ("INSERT INTO t VALUES (7, 1), (7, 2)", ("key_violation", 7, None, None)),
        ]:
            t.execute(statement)
            assert [r[1:] for r in cursor.fetchmany(9, timeout=WAIT)] == [row], statement


def test_rows_of_a_timestamp_come_in_the_order_asked_for(t):
    t.execute("INSERT INTO t VALUES (1, 1), (2, 5), (3, NULL), (4, 5)")
    text = "SUBSCRIBE t WITHIN TIMESTAMP ORDER BY v DESC NULLS LAST, k DESC"
    with t.subscribe(text) as cursor:
        assert [r[2] for r in cursor.fetchmany(9)] == [4, 2, 1, 3]
        t.execute("UPDATE t SET v = 9 WHERE k = 1")
        assert [r[1:] for r in cursor.fetchmany(9, timeout=WAIT)] == [(1, 1, 9), (-1, 1, 1)]
    with t.subscribe("SUBSCRIBE t WITHIN TIMESTAMP ORDER BY v") as cursor:
        assert [r[3] for r in cursor.fetchmany(9)] == [5, 5, 9, None]


@pytest.mark.parametrize(
    ("text", "state", "message"),
    [
        ("SUBSCRIBE nothing", "42P01", "unknown catalog item 'nothing'"),
        (
            "SUBSCRIBE t ENVELOPE UPSERT (KEY (x))",
            "42P10",
            "invalid keys in SUBSCRIBE ENVELOPE UPSERT",
        ),
        ("SUBSCRIBE t ENVELOPE UPSERT", "42601", "Expected left parenthesis"),
        ("SUBSCRIBE t WITHIN TIMESTAMP ORDER BY x", "42P10", "invalid ORDER BY in SUBSCRIBE"),
        ("SUBSCRIBE t WITHIN TIMESTAMP ORDER BY k + 1", "42P10", "invalid ORDER BY in SUBSCRIBE"),
        ("SUBSCRIBE t WITH (SNAPSHOT = 7)", "42601", "Expected TRUE or FALSE"),
        ("SUBSCRIBE t WITH (NOTHING)", "42601", "Expected one of PROGRESS or SNAPSHOT"),
        (
            "SUBSCRIBE t AS OF 5 UP TO 3",
            "22000",
            "is greater than its upper bound (`UP TO`): 5 > 3",
        ),
        ("SUBSCRIBE t AS OF 5", "22023", "Timestamp (5) is not valid for all inputs"),
        ("SUBSCRIBE t AS OF k", "42703", 'column "k" does not exist'),
        (
            "SUBSCRIBE (SELECT now(), k FROM t)",
            "0A000",
            "cannot materialize call to current_timestamp",
        ),
        ("SUBSCRIBE t UP TO 3 UP TO 4", "42601", "given twice"),
    ],
)
def test_errors_are_materializes(t, text, state, message):
    t.execute("INSERT INTO t VALUES (1, 1)")
    with pytest.raises(mzsql.Error) as failure:
        t.subscribe(text)
    assert failure.value.sqlstate == state
    assert message in str(failure.value)
    assert t.coordinator.subscriptions == 0


def test_an_error_comes_at_its_time_after_the_rows_before(t):
    t.execute("INSERT INTO t VALUES (1, 1)")
    with t.subscribe("SUBSCRIBE (SELECT 10 / v FROM t)") as cursor:
        assert cursor.fetchone()[1:] == (1, 10)
        t.execute("INSERT INTO t VALUES (2, 2)")
        t.execute("INSERT INTO t VALUES (3, 0)")
        assert cursor.fetchone()[1:] == (1, 5)
        with pytest.raises(mzsql.DataError, match="division by zero"):
            cursor.fetchone()
        assert cursor.fetchone() is None
    with (
        t.subscribe("SUBSCRIBE (SELECT 10 / v FROM t)") as cursor,
        pytest.raises(mzsql.DataError, match="division by zero"),
    ):
        cursor.fetchone()


def test_dropping_what_is_subscribed_to_ends_it(t):
    with t.subscribe("SUBSCRIBE t") as cursor:
        assert cursor.fetchmany(1, timeout=0.05) == []
        t.execute("DROP TABLE t")
        with pytest.raises(mzsql.ProgrammingError, match=r'underlying relation ".*t" was dropped'):
            cursor.fetchone()


def test_closing_in_another_thread_ends_a_fetch(t):
    cursor = t.subscribe("SUBSCRIBE t")
    ended = []

    def fetch():
        try:
            ended.append(cursor.fetchone())
        except mzsql.Error as failure:
            ended.append(failure.sqlstate)

    thread = threading.Thread(target=fetch)
    thread.start()
    end = time.monotonic() + WAIT
    while not cursor._stream.busy:
        assert time.monotonic() < end
        time.sleep(0.001)
    t.close()
    thread.join(WAIT)
    assert not thread.is_alive()
    assert ended == ["57014"]


def test_a_cancel_ends_the_fetch_that_waits(t):
    cursor, other = t.subscribe("SUBSCRIBE t"), t.subscribe("SUBSCRIBE t")
    ended = threading.Event()

    def cancel():
        while not ended.wait(0.2):  # one that comes before the fetch waits ends nothing
            t.cancel()

    canceller = threading.Thread(target=cancel)
    canceller.start()
    with pytest.raises(mzsql.OperationalError, match="due to user request") as failure:
        cursor.fetchone()
    assert failure.value.sqlstate == "57014"
    ended.set()
    canceller.join()
    t.execute("INSERT INTO t VALUES (1, 2)")
    assert other.fetchone()[1:] == (1, 1, 2)
    assert t.coordinator.subscriptions == 1


def test_a_loop_that_is_left_ends_its_subscription(t):
    t.execute("INSERT INTO t VALUES (1, 2)")
    for row in t.execute("SUBSCRIBE t"):
        assert row[1:] == (1, 1, 2)
        break
    gc.collect()
    assert t.coordinator.subscriptions == 0


def test_another_statement_on_the_cursor_ends_its_subscription(t):
    with t.subscribe("SUBSCRIBE t") as cursor:
        assert t.coordinator.subscriptions == 1
        cursor.execute("SELECT 1")
        assert t.coordinator.subscriptions == 0
        assert cursor.fetchall() == [(1,)]


def test_two_subscriptions_and_the_connection_go_side_by_side(t):
    with t.subscribe("SUBSCRIBE t") as one, t.subscribe("SUBSCRIBE (SELECT v FROM t)") as other:
        t.execute("INSERT INTO t VALUES (1, 2)")
        assert one.fetchone()[1:] == (1, 1, 2)
        assert other.fetchone()[1:] == (1, 2)
        assert t.execute("SELECT * FROM t").fetchall() == [(1, 2)]


def test_it_reads_what_compaction_would_have_taken(t):
    """What a subscription has still to read is held, however long ago it was."""
    t.execute("INSERT INTO t VALUES (1, 0)")
    with t.subscribe("SUBSCRIBE t") as cursor:
        assert cursor.fetchone()[1:] == (1, 1, 0)
        times = []
        for i in range(1, 6):
            t.execute(f"UPDATE t SET v = {i}")
            times.append(now(t))
        env = t.coordinator.env
        env.collections.release_history(times[-1])
        rows = [cursor.fetchone() for _ in range(10)]
        assert [r[1:] for r in rows] == [
            row for i in range(1, 6) for row in [(-1, 1, i - 1), (1, 1, i)]
        ]
        assert len({r[0] for r in rows}) == 5


def test_arrow_batches_carry_the_same_rows(t):
    t.execute("INSERT INTO t SELECT x, x FROM generate_series(1, 40000) AS g(x)")
    ts = now(t)
    with t.subscribe(f"SUBSCRIBE t AS OF {ts} UP TO {ts + 1}") as cursor:
        tables = list(cursor.arrow_batches())
    assert len(tables) > 1
    assert sorted(v for one in tables for v in one.column("k").to_pylist()) == list(range(1, 40001))


def test_a_burst_is_read_in_several_steps_and_loses_nothing(t, monkeypatch):
    monkeypatch.setattr("mzsql.adapter.subscribe.subscription.STEP_ROWS", 5)
    text = "SUBSCRIBE (SELECT k, count(*) FROM t GROUP BY k)"
    with t.subscribe(text) as cursor:
        for i in range(12):
            t.execute(f"INSERT INTO t VALUES ({i % 3}, {i}), ({i % 3}, {i})")
        total = Counter()
        while total != Counter({(0, 8): 1, (1, 8): 1, (2, 8): 1}):
            for _, diff, *row in cursor.fetchmany(100, timeout=WAIT):
                total[tuple(row)] += diff
            total = +total


def test_system_relations_and_show_can_be_subscribed_to(t):
    text = "SUBSCRIBE (SELECT name FROM mz_catalog.mz_tables WHERE id LIKE 'u%')"
    with t.subscribe(text) as cursor, t.subscribe("SUBSCRIBE (SHOW TABLES)") as shown:
        assert cursor.fetchone()[1:] == (1, "t")
        assert shown.fetchone()[1:3] == (1, "t")
        t.execute("CREATE TABLE another (x int)")
        assert cursor.fetchone()[1:] == (1, "another")
        assert shown.fetchone()[1:3] == (1, "another")
        t.execute("DROP TABLE another")
        assert cursor.fetchone()[1:] == (-1, "another")
