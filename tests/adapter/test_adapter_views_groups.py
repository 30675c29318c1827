"""Views over the first rows of groups and over windows: what they hold after any change, and how little of a group a change reads.

The answer comes from the query itself, which is computed from the table by other statements than a step's.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest

import mzsql
from mzsql.compute.controller import controller
from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.replica.arrangements import cold, lookups
from mzsql.compute.replica.arrangements.hot import Hot
from mzsql.dbapi import Connection

_NAN = "CAST('NaN' AS double precision)"

#: Nodes that look at the first rows of groups: alone, beside sums, over and under others, with NULLs, ties and errors.
_GROUPS = (
    "SELECT max(x) AS m, min(x) AS n FROM t",
    "SELECT min(b) AS m, max(b) AS n FROM t WHERE b > 10",
    "SELECT g, max(x) AS m, min(y) AS n, count(*) AS c, sum(x) AS s, count(DISTINCT b) AS d FROM t GROUP BY g",
    "SELECT g, max(z) AS m, min(z) AS n FROM t GROUP BY g",
    "SELECT g, max(x) FILTER (WHERE b > 5) AS m, max(x) AS n FROM t GROUP BY g HAVING max(x) > 10",
    "SELECT * FROM t ORDER BY x DESC, b LIMIT 10",
    "SELECT g, x, b FROM t ORDER BY x NULLS FIRST, y LIMIT 5 OFFSET 3",
    "SELECT * FROM (SELECT DISTINCT g FROM t) AS k,"
    " LATERAL (SELECT x, y FROM t WHERE t.g = k.g ORDER BY y DESC NULLS LAST LIMIT 3) AS l",
    "SELECT DISTINCT ON (g) g, z, b FROM t ORDER BY g, z DESC, b",
    "SELECT t.* FROM t, (SELECT g, max(x) AS m FROM t GROUP BY g) AS m WHERE t.g = m.g AND t.x = m.m",
    "SELECT max(m) AS m, min(c) AS c FROM (SELECT g, max(x) AS m, count(*) AS c FROM t GROUP BY g) AS s",
    "SELECT g, max(x) AS m, string_agg(g, ',') AS a FROM t GROUP BY g",
    "SELECT max(a.x) AS m FROM t AS a JOIN t AS c ON a.b = c.b WHERE a.g = 'a' AND c.g = 'b'",
    "SELECT g, max(10 / b) AS m FROM t GROUP BY g",
)

_WINDOWS = (
    "SELECT b, g, row_number() OVER (PARTITION BY g ORDER BY x, b, y, z) AS r FROM t",
    "SELECT b, rank() OVER (ORDER BY x) AS r, dense_rank() OVER (PARTITION BY g ORDER BY b) AS d FROM t",
    "SELECT b, sum(x) OVER (PARTITION BY g ORDER BY b) AS s, count(*) OVER () AS n FROM t",
    "SELECT b, lag(x, 1, 0) OVER (PARTITION BY g ORDER BY b, x, y, z) AS l FROM t",
    "SELECT g, max(r) AS m FROM (SELECT g, rank() OVER (PARTITION BY g ORDER BY x) AS r FROM t) AS s GROUP BY g",
    "SELECT b, 10 / sum(x) OVER (PARTITION BY g) AS q FROM t",
    "SELECT t.b, s.r FROM t JOIN"
    " (SELECT g, rank() OVER (PARTITION BY g ORDER BY x) AS r FROM t) AS s ON s.g = t.g WHERE t.b < 5",
)


def _row(rng: random.Random) -> str:
    return "({}, {}, {}, {}, {})".format(
        rng.choice(["NULL", "'a'", "'b'", "'c'"]),
        rng.choice(["NULL", str(rng.randint(-50, 50))]),
        rng.choice(["NULL", str(rng.randint(-500, 500) / 100)]),
        rng.choice(["NULL", _NAN, "0", str(rng.randint(0, 3))]),
        rng.randint(0 if rng.random() < 0.02 else 1, 30),
    )


def _change(rng: random.Random) -> str:
    what = rng.random()
    if what < 0.4:
        rows = [_row(rng) for _ in range(rng.choice([1, 2, 20]))]
        return "INSERT INTO t VALUES " + ", ".join(rows + rows[:1])
    if what < 0.6:
        return f"DELETE FROM t WHERE b = {rng.randint(0, 30)}"
    if what < 0.7:
        return f"DELETE FROM t WHERE x > {rng.randint(10, 50)}"
    if what < 0.78:
        return "DELETE FROM t WHERE x = (SELECT max(x) FROM t)"
    if what < 0.82:
        return "DELETE FROM t"
    return f"UPDATE t SET y = y + 1, x = x - 1 WHERE b < {rng.randint(1, 9)}"


def _answer(con: Connection, sql: str) -> list[str] | str:
    try:
        return sorted(map(repr, con.execute(sql).fetchall()))
    except mzsql.Error as error:
        return str(error)


def _environment(directory: Path, engine: str, views: tuple[str, ...], seed: int) -> Connection:
    con = mzsql.connect(str(directory))
    con.execute(f"ALTER SYSTEM SET step_engine = '{engine}'")
    con.execute(
        "CREATE TABLE t (g text, x int, y numeric(10, 2), z double precision, b int NOT NULL)"
    )
    rng = random.Random(seed)
    con.execute("INSERT INTO t VALUES " + ", ".join(_row(rng) for _ in range(200)))
    for number, query in enumerate(views):
        con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
    return con


def _check(con: Connection, views: tuple[str, ...], seed: int, rounds: int) -> None:
    rng = random.Random(seed)
    for _ in range(rounds):
        # Sometimes several changes are one step, and sometimes one is several.
        for _ in range(rng.choice([1, 1, 3])):
            con.execute(_change(rng))
        for number, query in enumerate(views):
            assert _answer(con, f"SELECT * FROM v{number}") == _answer(con, query), query


@pytest.mark.parametrize("views", [_GROUPS, _WINDOWS], ids=["groups", "windows"])
def test_views_hold_what_their_queries_answer(tmp_path: Path, views: tuple[str, ...]) -> None:
    con = _environment(tmp_path, "duckdb", views, 11)
    try:
        _check(con, views, 12, 5)
    finally:
        con.close()
    con = mzsql.connect(str(tmp_path))
    try:
        _check(con, views, 13, 1)
    finally:
        con.close()


def test_extremes_are_joined_with_what_changes_while_they_do_not(tmp_path: Path) -> None:
    """Of a group that a change of another table asks for, the extremes are read as well as what says that it is there."""
    views = {
        "one": "SELECT o.k, m.a FROM o JOIN (SELECT g, min(v) AS a FROM t GROUP BY g) AS m ON m.g = o.k",
        "both": "SELECT o.k, m.a, m.b, m.n FROM o LEFT JOIN"
        " (SELECT g, min(v) AS a, max(w) AS b, count(*) AS n FROM t GROUP BY g) AS m ON m.g = o.k",
        "none": "SELECT o.k, m.b FROM o JOIN (SELECT g, max(w) AS b FROM t GROUP BY g) AS m ON m.g = o.k",
    }
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE TABLE o (k int); CREATE TABLE t (g int, v int, w int NOT NULL)")
        con.execute(
            "INSERT INTO t VALUES (1, 10, 1), (1, 20, 2), (1, 30, 3), (2, NULL, 4), (3, 5, 5)"
        )
        for name, query in views.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
        for change in (
            "INSERT INTO o VALUES (1), (2), (4)",
            "INSERT INTO o VALUES (3), (1)",
            "DELETE FROM t WHERE v = 10",
            "DELETE FROM o WHERE k = 2",
            "INSERT INTO t VALUES (4, NULL, 0)",
        ):
            con.execute(change)
            for name, query in views.items():
                assert _answer(con, f"SELECT * FROM {name}") == _answer(con, query), (name, change)


def test_first_rows_are_read_from_shards_where_there_is_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cold, "COLD_ROWS", 0)
    monkeypatch.setattr(controller, "ComputeSettings", partial(ComputeSettings, warm_rows=0))
    # What was read whole is not counted, or the traces would be loaded soon.
    monkeypatch.setattr(Hot, "read_cold", property(lambda _: 0, lambda _, __: None), raising=False)
    bounded: list[bool] = []
    first = cold.first_from_shard

    def counted(*args: Any) -> Any:
        found = first(*args)
        bounded.append(found is not None and not found.whole)
        return found

    monkeypatch.setattr(lookups, "first_from_shard", counted)
    file = tmp_path / "t.parquet"
    duckdb.sql(
        "COPY (SELECT range AS id, (range % 2)::INT AS g,"
        " CASE WHEN range % 97 = 0 THEN NULL ELSE (hash(range) % 9000)::INT END AS x,"
        " ((hash(range + 1) % 900) / 7)::DECIMAL(10, 2) AS y, DATE '2020-01-01' + (range % 500)::INT AS d"
        f" FROM range(15000)) TO '{file}' (FORMAT parquet)"
    )
    views = (
        "SELECT max(x) AS m, min(x) AS n, count(*) AS c FROM t",
        "SELECT g, max(x) AS m, min(y) AS n, max(d) AS o FROM t GROUP BY g",
        "SELECT id, x FROM t ORDER BY x DESC NULLS LAST, id LIMIT 20",
        "SELECT id, d, x FROM t ORDER BY d DESC, x LIMIT 5",
        "SELECT * FROM (SELECT DISTINCT g FROM t) AS k,"
        " LATERAL (SELECT id, x FROM t WHERE t.g = k.g ORDER BY x LIMIT 7 OFFSET 2) AS l",
    )
    con = mzsql.connect(str(tmp_path / "env"))
    try:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        con.execute("CREATE TABLE t (id bigint, g int, x int, y numeric(10, 2), d date)")
        con.execute(f"COPY t FROM '{file}' (FORMAT parquet)")
        for number, query in enumerate(views):
            con.execute(f"CREATE MATERIALIZED VIEW v{number} AS {query}")
        for change in (
            "INSERT INTO t VALUES (-1, 0, 1000000, -5, DATE '2030-01-01'), (-2, NULL, 3, 3, NULL)",
            "DELETE FROM t WHERE id = -1",
            "DELETE FROM t WHERE x >= 8990",
            "DELETE FROM t WHERE g = 1 AND (x > 8000 OR x < 500 OR y < 10)",
            "DELETE FROM t WHERE x > 40",
        ):
            con.execute(change)
            for number, query in enumerate(views):
                assert _answer(con, f"SELECT * FROM v{number}") == _answer(con, query), query
    finally:
        con.close()
    assert any(bounded)


@pytest.mark.spark
@pytest.mark.parametrize(
    "views",
    [
        pytest.param(_GROUPS, id="groups", marks=pytest.mark.long),
        pytest.param(_WINDOWS, id="windows", marks=pytest.mark.soak),
    ],
)
def test_views_stepped_by_spark_hold_what_their_queries_answer(
    tmp_path: Path, views: tuple[str, ...]
) -> None:
    con = _environment(tmp_path, "spark", views, 21)
    try:
        con.execute("SET statement_timeout = '20 min'")
        _check(con, views, 22, 3)
    finally:
        con.close()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """Tables of one group of 2,000 and of 40,000 rows, and views of its first rows."""
    directory = tmp_path_factory.mktemp("large")
    con = mzsql.connect(str(directory / "env"))
    con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
    for rows in (2_000, 40_000):
        path = directory / f"{rows}.parquet"
        duckdb.sql(
            f"COPY (SELECT range AS id, (range * 7919) % 1000003 AS x, 1::BIGINT AS g FROM range({rows}))"
            f" TO '{path}' (FORMAT parquet)"
        )
        con.execute(
            f"CREATE TABLE t{rows} (id bigint NOT NULL, x bigint NOT NULL, g bigint NOT NULL)"
        )
        con.execute(f"COPY t{rows} FROM '{path}' (FORMAT parquet)")
        for name, query in {
            "extremes": "SELECT max(x) AS a, min(x) AS b FROM {}",
            "by_group": "SELECT g, max(x) AS a, count(*) AS n FROM {} GROUP BY g",
            "top": "SELECT * FROM {} ORDER BY x DESC LIMIT 10",
        }.items():
            con.execute(f"CREATE MATERIALIZED VIEW {name}_{rows} AS {query.format(f't{rows}')}")
    yield con
    con.close()


def _touched(con: Connection, view: str) -> int:
    """Rows of state that the view's last step that was not idle touched."""
    ((reason,),) = con.execute(
        "SELECT r.reason FROM mz_internal.mz_refreshes AS r JOIN mz_objects AS o ON o.id = r.object_id"
        f" WHERE o.name = '{view}' AND r.kind = 'step' ORDER BY r.upper DESC LIMIT 1"
    ).fetchall()
    found = re.search(r"touch (\d+) rows of state", reason)
    assert found is not None, reason
    return int(found[1])


@pytest.mark.parametrize("view", ["extremes", "by_group", "top"])
def test_what_a_step_reads_does_not_grow_with_the_group(large: Connection, view: str) -> None:
    touched = {}
    for rows in (2_000, 40_000):
        read = []
        for change in (
            "INSERT INTO t{0} VALUES (-1, 2000000, 1)",
            "DELETE FROM t{0} WHERE id = -1",
            "DELETE FROM t{0} WHERE x = (SELECT max(x) FROM t{0})",
        ):
            large.execute(change.format(rows))
            column = "max(x)" if view == "top" else "a"
            got = large.execute(f"SELECT {column} FROM {view}_{rows}").fetchall()
            assert got == large.execute(f"SELECT max(x) FROM t{rows}").fetchall()
            read.append(_touched(large, f"{view}_{rows}"))
        touched[rows] = max(read)
    assert 0 < touched[40_000] <= 2 * touched[2_000] <= 500
