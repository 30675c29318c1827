"""What steps look into is there again after a restart, without being read from the stores; whatever became of it, answers are right."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

import mzsql
from mzsql.compute.replica.arrangements import hot, trace
from mzsql.compute.replica.arrangements.arrangement import Arrangement

_ROWS = 6_000
_VIEWS = {
    "joined": "SELECT a.k, a.x, b.y FROM a JOIN b ON a.k = b.k WHERE b.y < 40",
    "summed": "SELECT g, sum(x) AS s, count(*) AS n FROM a GROUP BY g",
    "first": "SELECT g, max(x) AS m, min(k) AS n FROM a GROUP BY g",
    "distant": "SELECT DISTINCT g FROM a WHERE x > 10",
}
_CHANGES = (
    "INSERT INTO a VALUES (7, 'g1', 5000000), (8, NULL, 3)",
    "DELETE FROM a WHERE k % 500 = 7",
    "INSERT INTO b VALUES (9, 1), (9, 1)",
    "DELETE FROM b WHERE k BETWEEN 5 AND 20",
    "UPDATE a SET x = x + 1 WHERE k < 40",
    "DELETE FROM a WHERE x > 5000",
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hot, "KEPT_ROWS", 1)
    monkeypatch.setattr(trace, "MAPPED_BYTES", 32 * 1024)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The arrangements that were loaded from their shards."""
    load, loaded = Arrangement._load_stored, list[str]()

    def counted(self: Arrangement, as_of: int, durable: int | None) -> object:
        loaded.append(self.desc.name)
        return load(self, as_of, durable)

    monkeypatch.setattr(Arrangement, "_load_stored", counted)
    return loaded


def _make(con: mzsql.Connection) -> None:
    con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
    con.execute("CREATE TABLE a (k bigint, g text, x int); CREATE TABLE b (k bigint, y int)")
    con.execute(
        f"INSERT INTO a SELECT k, 'g' || (k % 300)::text, (k * 37 % 1000)::int FROM generate_series(1, {_ROWS}) AS s(k)"
    )
    con.execute(f"INSERT INTO b SELECT k, k % 100 FROM generate_series(1, {_ROWS}) AS s(k)")
    for name, query in _VIEWS.items():
        con.execute(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    con.execute("CREATE INDEX of_summed ON summed (g)")
    _check(con, "hydrated")


def _check(con: mzsql.Connection, change: str) -> None:
    for name, query in _VIEWS.items():
        ours, theirs = (
            sorted(con.execute(one).fetchall(), key=repr)
            for one in (f"SELECT * FROM {name}", query)
        )
        assert ours == theirs, (name, change)


def _lists(env: Path) -> list[Path]:
    return list((env / "hot").rglob("kept.json"))


def test_after_a_restart_no_trace_is_read_from_its_shard(tmp_path: Path, stored: list[str]) -> None:
    env = tmp_path / "env"
    with mzsql.connect(env) as con:
        _make(con)
        for change in _CHANGES[:2]:
            con.execute(change)
            _check(con, change)
    assert len(_lists(env)) >= 4
    stored.clear()
    for life in range(2):
        with mzsql.connect(env) as con:
            for change in _CHANGES[2 + life :: 2]:
                con.execute(change)
                _check(con, change)
    assert stored == []


@pytest.mark.parametrize("damaged", ["deleted", "listed and gone", "flipped", "junk"])
def test_whatever_became_of_what_was_kept_answers_are_right(
    tmp_path: Path, stored: list[str], damaged: str
) -> None:
    env = tmp_path / "env"
    with mzsql.connect(env) as con:
        _make(con)
        con.execute(_CHANGES[0])
        _check(con, _CHANGES[0])
    if damaged == "deleted":
        shutil.rmtree(env / "hot")
    for path in (env / "hot").rglob("*"):
        if damaged == "listed and gone" and path.suffix == ".hashes":
            path.unlink()
        elif damaged == "flipped" and path.suffix == ".rows":
            data = bytearray(path.read_bytes())
            data[len(data) // 3] ^= 0x10
            path.write_bytes(data)
        elif damaged == "junk" and path.name == "kept.json":
            path.write_bytes(b"\x00{")
    stored.clear()
    with mzsql.connect(env) as con:
        for change in _CHANGES[1:]:
            con.execute(change)
            _check(con, change)
    assert stored


def test_after_a_crash_what_came_since_is_read_from_the_shard(
    tmp_path: Path, stored: list[str]
) -> None:
    """A copy of an environment that is in use is what a crash leaves."""
    env, copy = tmp_path / "env", tmp_path / "copy"
    with mzsql.connect(env) as con:
        _make(con)
        con.execute(_CHANGES[0])
        _check(con, _CHANGES[0])
        end = time.monotonic() + 60
        while len(_lists(env)) < 4:
            assert time.monotonic() < end
            time.sleep(0.05)
        for change in _CHANGES[1:4]:
            con.execute(change)
            _check(con, change)
        shutil.copytree(env, copy)
    stored.clear()
    with mzsql.connect(copy) as con:
        for change in _CHANGES[4:]:
            con.execute(change)
            _check(con, change)
    # The index is the one whose trace nobody looked into, so that none was there to be kept.
    assert {name.partition("_")[0] for name in stored} <= {"arr"}


def test_what_a_dropped_replica_has_kept_goes(tmp_path: Path) -> None:
    env = tmp_path / "env"
    with mzsql.connect(env) as con:
        con.execute("CREATE CLUSTER c SIZE '1'; SET cluster = c")
        _make(con)
        con.execute(_CHANGES[0])
        _check(con, _CHANGES[0])
    kept = {path.parent.parent for path in _lists(env)}
    assert len(kept) == 1
    with mzsql.connect(env) as con:
        con.execute("DROP CLUSTER c CASCADE")
        end = time.monotonic() + 60
        while any(path.exists() for path in kept):
            assert time.monotonic() < end
            time.sleep(0.05)


def test_what_a_dropped_view_has_kept_goes(tmp_path: Path) -> None:
    env = tmp_path / "env"
    with mzsql.connect(env) as con:
        _make(con)
        con.execute(_CHANGES[0])
        _check(con, _CHANGES[0])
    assert _lists(env)
    with mzsql.connect(env) as con:
        con.execute("DROP MATERIALIZED VIEW joined, summed, first, distant CASCADE")
        end = time.monotonic() + 60
        while _lists(env):
            assert time.monotonic() < end
            time.sleep(0.05)
