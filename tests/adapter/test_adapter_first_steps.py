"""The first steps after a hydration, and after an environment is opened again: what they read, and what comes out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

import mzsql
from mzsql.compute.replica.arrangements import run_files, trace
from mzsql.compute.replica.hydration import filling

_ROWS = 300_000
#: Joins, sums, first rows, and keys of texts, which have a hash of their own.
_VIEWS = {
    "joined": "SELECT a.k, a.x, b.y FROM a JOIN b ON a.k = b.k WHERE b.y < 40",
    "summed": "SELECT g, sum(x) AS s, count(*) AS n FROM a GROUP BY g",
    "first": "SELECT g, max(x) AS m, min(k) AS n FROM a GROUP BY g",
}
_CHANGES = (
    "INSERT INTO a VALUES (7, 'g1', 5000000), (8, NULL, 3)",
    "DELETE FROM a WHERE k % 50000 = 7",
    "INSERT INTO b VALUES (9, 1), (9, 1)",
    "DELETE FROM b WHERE k BETWEEN 5 AND 20",
)


def _file(folder: Path) -> Path:
    file = folder / "a.parquet"
    duckdb.sql(
        f"COPY (SELECT range AS k, 'g' || (hash(range) % 3000) AS g, (hash(range + 1) % 100000)::INT AS x FROM range({_ROWS}))"
        f" TO '{file}' (FORMAT parquet)"
    )
    return file


def _load(con: mzsql.Connection, folder: Path) -> None:
    con.execute("CREATE TABLE a (k bigint, g text, x int); CREATE TABLE b (k bigint, y int)")
    con.execute(f"COPY a FROM '{_file(folder)}' (FORMAT parquet)")
    con.execute(f"INSERT INTO b SELECT k, k % 100 FROM generate_series(1, {_ROWS // 10}) AS s(k)")


def _hydrate(con: mzsql.Connection) -> None:
    for name, query in _VIEWS.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    for name in _VIEWS:
        con.execute(f"SELECT count(*) FROM {name}").fetchall()


def _check(con: mzsql.Connection, change: str) -> None:
    for name, query in _VIEWS.items():
        ours, theirs = (
            sorted(con.execute(one).fetchall(), key=repr)
            for one in (f"SELECT * FROM {name}", query)
        )
        assert ours == theirs, (name, change)


def _read(con: mzsql.Connection, number: int) -> list[int]:
    """The stored bytes that each view's steps have read, once as many views have had one."""
    asked = "SELECT bytes_read FROM mz_internal.mz_refreshes WHERE kind = 'step'"
    while len(rows := con.execute(asked).fetchall()) < number:
        time.sleep(0.01)
    return [int(read) for (read,) in rows]


@pytest.fixture
def con(tmp_path: Path) -> Iterator[mzsql.Connection]:
    with mzsql.connect(str(tmp_path / "env")) as made:
        made.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        yield made


def test_the_first_step_reads_nothing_of_what_its_hydration_wrote(
    con: mzsql.Connection, tmp_path: Path
) -> None:
    _load(con, tmp_path)
    _hydrate(con)
    con.execute(_CHANGES[0])
    _check(con, _CHANGES[0])
    assert max(_read(con, len(_VIEWS))) < 64 * 1024


def test_traces_of_many_pieces_find_what_those_of_one_find(
    con: mzsql.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filling, "PIECE_BYTES", 256 * 1024)
    monkeypatch.setattr(trace, "FAN", 2)  # so that steps merge runs, some of which are such pieces
    _load(con, tmp_path)
    _hydrate(con)
    for change in _CHANGES:
        con.execute(change)
        _check(con, change)
    con.execute("DELETE FROM a WHERE k % 2 = 0")
    _check(con, "half")


def test_where_a_trace_cannot_be_made_steps_load_it(
    con: mzsql.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as failing:
        failing.setattr(trace.Trace, "run_of", full)
        _load(con, tmp_path)
        _hydrate(con)
    for change in _CHANGES:
        con.execute(change)
        _check(con, change)


def test_a_full_disk_leaves_traces_in_memory(
    con: mzsql.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(trace, "MAPPED_BYTES", 1024)
    _load(con, tmp_path)
    monkeypatch.setattr(run_files, "_written", full)
    _hydrate(con)
    for change in _CHANGES:
        con.execute(change)
        _check(con, change)


def test_what_steps_look_into_is_loaded_after_opening(tmp_path: Path) -> None:
    env = str(tmp_path / "env")
    with mzsql.connect(env) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        _load(con, tmp_path)
        _hydrate(con)
        con.execute(_CHANGES[0])
        _check(con, _CHANGES[0])
    with mzsql.connect(env) as con:
        for change in _CHANGES[1:]:
            con.execute(change)
            _check(con, change)
