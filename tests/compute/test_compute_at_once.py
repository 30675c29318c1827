"""Statements over few rows are bound once, long ones kept planned: whatever the rows are the next time, DuckDB itself answers the same."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import duckdb
import pyarrow as pa
import pytest

import mzsql
from mzsql.compute.engines.pool import AT_ONCE_ROWS, LONG_TEXT, SHORT_ROWS, DuckDbPool
from mzsql.repr.errors import QueryCanceled
from mzsql.repr.interrupt import Interrupt, running

_SUMS = ", ".join(
    f"sum(CASE WHEN v % 97 = {n} THEN v + {n} END)::bigint AS s{n}" for n in range(200)
)
_GROUPED = f"SELECT k, {_SUMS} FROM t GROUP BY k ORDER BY k"
_PAIRS = f"SELECT a.v AS a, b.v AS b, {' + '.join(f'(a.v % {n})' for n in range(1, 900))} AS c FROM t a, t b ORDER BY ALL"


@pytest.fixture
def pool() -> Iterator[DuckDbPool]:
    made = DuckDbPool()
    yield made
    made.close()


def _rows(count: int, seed: int = 0) -> pa.Table:
    rng = random.Random(seed)
    values = [rng.randrange(1000) for _ in range(count)]
    return pa.table({"k": [v % 5 for v in values], "v": values})


def _by_duckdb(text: str, rows: pa.Table) -> list[tuple[object, ...]]:
    with duckdb.connect() as judge:
        judge.register("t", rows)
        return judge.sql(text).fetchall()


def _tuples(table: pa.Table | None) -> list[tuple[object, ...]]:
    assert table is not None
    return [tuple(row.values()) for row in table.to_pylist()]


def test_other_rows_each_time(pool: DuckDbPool) -> None:
    assert len(_GROUPED) >= LONG_TEXT
    for count in (0, 10, 500, 0, 3):
        rows = _rows(count, seed=count)
        found = pool.at_once(_GROUPED, {"t": rows}, None)
        assert _tuples(found) == _by_duckdb(_GROUPED, rows)
        # Without a value each, the columns' types are others: another plan.
        empty = pa.table({"k": pa.array([1], pa.int32()), "v": pa.array([None], pa.int16())})
        found = pool.at_once(_GROUPED, {"t": empty}, None)
        assert _tuples(found) == _by_duckdb(_GROUPED, empty)


def test_a_limit_of_its_own_stands(pool: DuckDbPool) -> None:
    rows = _rows(100)
    text = f"{_PAIRS} LIMIT 7"
    assert _tuples(pool.at_once(text, {"t": rows}, 7)) == _by_duckdb(text, rows)
    assert pool.at_once(f"{_PAIRS} LIMIT {AT_ONCE_ROWS + 1}", {"t": rows}, AT_ONCE_ROWS + 1) is None


def test_many_rows_come_in_pieces(pool: DuckDbPool) -> None:
    few, many = _rows(90), _rows(91)
    assert 90 * 90 <= AT_ONCE_ROWS < 91 * 91
    assert _tuples(pool.at_once(_PAIRS, {"t": few}, None)) == _by_duckdb(_PAIRS, few)
    assert pool.at_once(_PAIRS, {"t": many}, None) is None
    pieces = list(pool.pieces(_PAIRS, {"t": many}))
    assert len(pieces) > 1
    assert _tuples(pa.concat_tables(pieces)) == _by_duckdb(_PAIRS, many)
    # It is not tried again, whatever it reads then.
    assert pool.at_once(_PAIRS, {"t": few}, None) is None


def test_what_fails_is_left_to_say_so_itself(pool: DuckDbPool) -> None:
    failing = _GROUPED.replace("FROM t", "FROM t WHERE CAST('x' || v AS INT) = 1")
    assert pool.at_once(failing, {"t": _rows(3)}, None) is None
    unknown = _GROUPED.replace("FROM t", "FROM nowhere")
    assert pool.at_once(unknown, {"t": _rows(3)}, None) is None
    assert _tuples(pool.at_once(_GROUPED, {"t": _rows(3)}, None)) == _by_duckdb(_GROUPED, _rows(3))


def test_side_by_side_each_sees_its_own_rows(pool: DuckDbPool) -> None:
    """Whoever finds the plan in use has the text run by another connection."""
    begin = threading.Barrier(4)

    def ask(seed: int) -> None:
        rows = _rows(50, seed)
        expected = _by_duckdb(_GROUPED, rows)
        begin.wait(30)
        for _ in range(20):
            found = pool.at_once(_GROUPED, {"t": rows}, None)
            if found is None:
                found = pa.concat_tables(pool.pieces(_GROUPED, {"t": rows}))
            assert _tuples(found) == expected

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(ask, seed) for seed in range(4)]:
            done.result(60)


def test_one_that_is_cancelled_ends(pool: DuckDbPool) -> None:
    endless = f"SELECT sum(a.v * b.v * c.v * d.v * e.v) AS x, {_SUMS.replace('v ', 'a.v ')} FROM t a, t b, t c, t d, t e"
    # Planned before: what falls due while a text is planned is found when that is done.
    assert pool.at_once(endless, {"t": _rows(2)}, None) is not None
    statement = Interrupt()
    timer = threading.Timer(0.2, statement.cancel)
    timer.start()
    with running(statement), pytest.raises(QueryCanceled):
        pool.at_once(endless, {"t": _rows(1000)}, None)
    timer.join()
    with running(statement), pytest.raises(QueryCanceled):
        pool.at_once(endless, {"t": _rows(2)}, None)
    # The plan is there for the next one.
    assert pool.at_once(endless, {"t": _rows(2)}, None) is not None


def test_queries_of_a_session_see_what_was_written(tmp_path: object) -> None:
    asked = f"SELECT k, {_SUMS} FROM t GROUP BY k ORDER BY k"
    with mzsql.connect(str(tmp_path)) as con, duckdb.connect() as judge:
        for one in (con, judge):
            one.execute("CREATE TABLE t (k bigint, v bigint)")
        for n in range(4):
            values = ", ".join(f"({i % 3}, {i * n})" for i in range(20))
            for one in (con, judge):
                one.execute(f"INSERT INTO t VALUES {values}")
            assert con.execute(asked).fetchall() == judge.execute(asked).fetchall()
        con.execute("DELETE FROM t")
        assert con.execute(asked).fetchall() == []
        con.execute("INSERT INTO t VALUES (1, NULL)")
        assert con.execute(asked).fetchall() == [(1, *(None,) * 200)]


_SHORT = "SELECT a.v AS a, b.v AS b FROM t a, t b ORDER BY ALL"


def test_short_statements_over_few_rows_are_answered_at_once(pool: DuckDbPool) -> None:
    assert len(_SHORT) < LONG_TEXT
    for count in (3, 0, 1, 45):
        assert count * count <= SHORT_ROWS
        rows = _rows(count, seed=count)
        assert _tuples(pool.at_once(_SHORT, {"t": rows}, None)) == _by_duckdb(_SHORT, rows)
    text = f"{_SHORT} LIMIT 7"
    assert _tuples(pool.at_once(text, {"t": rows}, 7)) == _by_duckdb(text, rows)


def test_short_statements_of_many_rows_come_in_pieces(pool: DuckDbPool) -> None:
    """They are not begun where what they read is more; of what they made too much is not taken, nor tried again."""
    counted = "SELECT count(*) AS n FROM t"
    assert pool.at_once(counted, {"t": _rows(SHORT_ROWS + 1)}, None) is None
    assert _tuples(pool.at_once(counted, {"t": _rows(SHORT_ROWS)}, None)) == [(SHORT_ROWS,)]
    assert pool.at_once(_SHORT, {"t": _rows(46)}, None) is None
    assert pool.at_once(_SHORT, {"t": _rows(3)}, None) is None
    assert pool.at_once(f"{_SHORT} LIMIT {SHORT_ROWS + 1}", {"t": _rows(3)}, SHORT_ROWS + 1) is None


def test_a_short_statement_that_fails_leaves_nothing_behind(pool: DuckDbPool) -> None:
    assert pool.at_once("SELECT CAST('x' || v AS INT) AS n FROM t", {"t": _rows(3)}, None) is None
    with pytest.raises(duckdb.CatalogException):
        list(pool.pieces("SELECT * FROM t", {}))


def test_a_short_statement_that_is_cancelled_ends(pool: DuckDbPool) -> None:
    endless = "SELECT sum(a.v * b.v * c.v * d.v * e.v) AS x FROM t a, t b, t c, t d, t e"
    statement = Interrupt()
    timer = threading.Timer(0.2, statement.cancel)
    timer.start()
    with running(statement), pytest.raises(QueryCanceled):
        pool.at_once(endless, {"t": _rows(1000)}, None)
    timer.join()
    assert pool.at_once(endless, {"t": _rows(2)}, None) is not None
