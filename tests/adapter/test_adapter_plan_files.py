"""Plans over builtin relations outlive the process that made them, whatever becomes of the files that they are kept in."""

from __future__ import annotations

import stat
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.adapter.environment import plan_files
from mzsql.adapter.environment.plan_files import PlanFiles
from mzsql.adapter.planning.planner import Planner
from mzsql.compute.engines.pool import DuckDbPool
from mzsql.compute.peek import execute
from mzsql.transform import pipeline

ASKED = (
    "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1, 2",
    "SELECT c.relname, n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'public'",
    "SELECT count(*), current_database() FROM mz_objects WHERE type = 'table'",
    "WITH MUTUALLY RECURSIVE up (id text, above text) AS (SELECT object_id, referenced_object_id FROM mz_internal.mz_object_dependencies"
    " UNION SELECT up.id, d.referenced_object_id FROM up JOIN mz_internal.mz_object_dependencies AS d ON d.object_id = up.above)"
    " SELECT count(*) FROM up",
    "SELECT 1 FROM mz_objects WHERE id = '1' AND id = '2'",
)


@pytest.fixture
def env(tmp_path: Path) -> Path:
    path = tmp_path / "env"
    with mzsql.connect(path) as con:
        con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        con.execute("CREATE TABLE t (a int, b text); CREATE VIEW v AS SELECT a FROM t")
    return path


def answers(path: Path, **options: bool) -> list[object]:
    """What another process answers, and how it explains it."""
    found: list[object] = []
    with mzsql.connect(path, **options) as con:  # type: ignore[arg-type]  # all are flags
        for text in ASKED:
            rows = con.execute(text).fetchall()
            found.append(sorted(rows) if "ORDER" not in text else rows)
            found.append(con.execute(f"EXPLAIN OPTIMIZED PLAN FOR {text}").fetchall())
    return found


def unable(*_: object) -> None:
    raise AssertionError("this was kept")


def test_what_reads_no_relation_is_not_kept(env: Path) -> None:
    with mzsql.connect(env) as con:
        for number in range(3):
            con.execute(f"SELECT {number} + 1, generate_series(1, {number})").fetchall()
        assert not list(env.glob("**/*.plan"))
        con.execute(ASKED[0]).fetchall()
        assert list(env.glob("**/*.plan"))


@pytest.mark.parametrize("many", [execute._MANY_ROWS, 1], ids=("few rows", "many rows"))
def test_what_a_process_has_planned_no_other_one_plans(
    env: Path, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(execute, "_MANY_ROWS", many)
    before = answers(env)
    monkeypatch.setattr(pipeline, "run", unable)
    monkeypatch.setattr("mzsql.compute.peek.query.to_sql", unable)
    assert answers(env) == before
    assert answers(env, read_only=True) == before


def test_asked_again_what_is_planned_once_answers_as_before(
    env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = (
        *ASKED,
        (files("mzsql.scripts") / "diagnostics" / "which_node_is_stuck.sql").read_text(),
    )
    with mzsql.connect(env) as con:
        before = [sorted(con.execute(text).fetchall()) for text in texts]
    monkeypatch.setattr(execute, "_MANY_ROWS", 1)
    planned: list[str] = []
    at_once = DuckDbPool.at_once

    def noted(pool: DuckDbPool, text: str, *given: Any) -> Any:
        planned.append(text)
        return at_once(pool, text, *given)

    monkeypatch.setattr(DuckDbPool, "at_once", noted)
    with mzsql.connect(env) as con:
        for round_ in range(3):
            assert [sorted(con.execute(text).fetchall()) for text in texts] == before
            assert bool(planned) == (round_ > 0)
        con.execute("CREATE TABLE u (c int)")
        assert ("u", "c", "integer") in con.execute(ASKED[0]).fetchall()


def test_views_are_kept_for_queries_that_are_new(
    env: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(env)
    monkeypatch.setattr(Planner, "_from_text", unable)
    with mzsql.connect(env) as con:
        new = "SELECT table_name FROM information_schema.columns WHERE column_name = 'b' AND table_schema = 'public'"
        assert con.execute(new).fetchall() == [("t",)]


def test_what_users_define_is_seen_at_once(env: Path) -> None:
    answers(env)
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE u (c int)")
        assert ("u", "c", "integer") in con.execute(ASKED[0]).fetchall()
        # A relation of a user's by the name of a builtin one is another one.
        con.execute("CREATE SCHEMA s; CREATE TABLE s.pg_class (relname text, relnamespace oid)")
        con.execute("SET search_path = s")
        unqualified = ASKED[1].replace("FROM pg_class", "FROM s.pg_class")
        assert con.execute(unqualified).fetchall() == []


def _cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _flipped(data: bytes) -> bytes:
    at = len(data) * 2 // 3
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize(
    "harm",
    [_cut, _flipped, lambda _: b"", lambda _: b"\0" * 100],
    ids=("cut", "flipped", "empty", "zero"),
)
def test_damaged_files_cost_time_only(env: Path, harm: Callable[[bytes], bytes]) -> None:
    before = answers(env)
    kept = list((env / "plans").iterdir())
    assert kept
    sound = {file: file.read_bytes() for file in kept}
    for file, data in sound.items():
        file.write_bytes(harm(data))
    assert answers(env) == before
    assert {file: file.read_bytes() for file in (env / "plans").iterdir()} == sound


def test_files_of_one_key_under_another_are_not_taken(env: Path) -> None:
    before = answers(env)
    files = sorted((env / "plans").iterdir())
    contents = [file.read_bytes() for file in files]
    for file, data in zip(files, contents[1:] + contents[:1], strict=True):
        file.write_bytes(data)
    assert answers(env) == before


def test_a_process_that_cannot_keep_anything_answers(env: Path) -> None:
    before = answers(env)
    for file in (env / "plans").iterdir():
        file.unlink()
    (env / "plans").rmdir()
    (env / "plans").write_text("no directory")
    assert answers(env) == before


def test_files_are_their_owners_alone(env: Path) -> None:
    answers(env)
    assert stat.S_IMODE((env / "plans").stat().st_mode) == 0o700
    for file in (env / "plans").iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_another_build_has_plans_of_its_own(tmp_path: Path) -> None:
    one, other = (PlanFiles(lambda: tmp_path, lambda build=build: build) for build in ("a", "b"))
    one.put(one.key("view", "s1"), b"plan")
    assert one.get(one.key("view", "s1"), bytes) == b"plan"
    assert other.get(other.key("view", "s1"), bytes) is None
    assert one.get(one.key("query", "s1"), bytes) is None


def test_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_files, "MOST_FILES", 32)
    files = PlanFiles(lambda: tmp_path, lambda: "a")
    for number in range(100):
        files.put(files.key("view", number), b"plan")
        assert len(list(tmp_path.iterdir())) <= 34
    assert files.get(files.key("view", 99), bytes) == b"plan"
    files.put(files.key("view", "large"), b"\0" * (plan_files.MOST_BYTES + 1))
    assert files.get(files.key("view", "large"), bytes) is None


def test_an_environment_in_memory_leaves_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with mzsql.connect(blob="mem:", consensus="mem:") as con:
        con.execute(ASKED[0]).fetchall()
    assert list(tmp_path.rglob("*.plan")) == []
