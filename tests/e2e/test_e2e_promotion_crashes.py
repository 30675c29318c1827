"""A promotion that ends between any two of its writes: whoever opens the environment then goes on from what is there."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from pathlib import Path

import promotion_worker
import pytest
from promotion_worker import KILLED, PATIENCE

import mzsql
from mzsql.adapter.environment import opening
from mzsql.adapter.environment.environment import CATALOG_SHARD
from mzsql.adapter.environment.expression_cache import parts_of
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.environment.opening import open_persist
from mzsql.adapter.planning.features import SystemFeatures
from mzsql.catalog.durable import peek_catalog
from mzsql.persist import SystemClock

WORKER = Path(promotion_worker.__file__)
ROWS = [(1, 2), (1, 3), (2, 4), (3, 5)]
VIEWS = (
    "CREATE MATERIALIZED VIEW joined AS SELECT x.a, y.b FROM t AS x JOIN t AS y ON x.a = y.a JOIN t AS z ON z.a = y.a",
    "CREATE MATERIALIZED VIEW sums AS SELECT a, sum(b) AS s FROM t GROUP BY a",
)

pytestmark = pytest.mark.timeout(900)


def expected(rows: list[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    """The number of rows of `joined`, and the rows of `sums`."""
    joined = sum(x[0] == y[0] == z[0] for x in rows for y in rows for z in rows)
    keys = sorted({a for a, _ in rows})
    return joined, [(key, sum(b for a, b in rows if a == key)) for key in keys]


def found(con: mzsql.Connection) -> tuple[int, list[tuple[int, int]]]:
    con.execute("SET statement_timeout = '10 min'")
    ((joined,),) = con.execute("SELECT count(*) FROM joined").fetchall()
    return joined, con.execute("SELECT a, s FROM sums ORDER BY a").fetchall()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of the older program in which the newer one has hydrated what it changes."""
    path = tmp_path_factory.mktemp("prepared") / "env"
    with contextlib.ExitStack() as stack:
        old = stack.enter_context(contextlib.closing(mzsql.connect(path)))
        old.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int, b int)")
        old.execute(f"INSERT INTO t VALUES {', '.join(map(str, ROWS))}")
        for text in VIEWS:
            old.execute(text)
        assert found(old) == expected(ROWS)
        with pytest.MonkeyPatch.context() as patched:
            newer(patched)
            new = stack.enter_context(contextlib.closing(mzsql.connect(path, deploy_generation=1)))
            caught_up(new)
            env = new.coordinator.env
            assert env.preparations.of(1).arrangements, "its plans are others"  # type: ignore[union-attr]
    return path


def newer(patched: pytest.MonkeyPatch) -> None:
    patched.setattr(opening, "VERSION", promotion_worker.VERSION)
    patched.setattr(SystemFeatures, "in_force", promotion_worker._features)


def caught_up(con: mzsql.Connection) -> None:
    env = con.coordinator.env
    deadline = time.monotonic() + PATIENCE
    while env.preparations.lacking(env.sync(), 1):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def generation(path: Path) -> int:
    """The deploy generation in charge, looked at without opening the environment."""
    with contextlib.ExitStack() as stack:
        newer(stack.enter_context(pytest.MonkeyPatch.context()))
        client = open_persist(locate(path), stack, None, SystemClock())
        state = peek_catalog(client, CATALOG_SHARD)
    assert state is not None
    return state.generation


@pytest.mark.long
def test_a_promotion_may_end_between_two_writes(prepared: Path, tmp_path: Path) -> None:
    ended(prepared, tmp_path, every=5)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(4))
def test_a_promotion_may_end_between_any_two_writes(
    prepared: Path, tmp_path: Path, first: int
) -> None:
    ended(prepared, tmp_path, first, every=4)


def ended(prepared: Path, folder: Path, first: int = 0, *, every: int) -> None:
    """End promotions, each in a copy, before one write of so many, from the first on, until there are no more: how many there are depends
    on what is written together.
    """
    promoted = []
    for write in range(first, 1000, every):
        path = folder / str(write)
        shutil.copytree(prepared, path)
        done = subprocess.run(
            [sys.executable, WORKER, str(path), str(write)],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode in (0, KILLED), done.stderr
        goes_on(path, generation(path))
        promoted.append(generation(path))
        shutil.rmtree(path)
        if done.returncode == 0:
            assert int(done.stdout) <= write
            break
    # Before the first write nothing has happened, and from the one that promotes on it stays so.
    assert first > 0 or promoted[0] == 0
    assert promoted == sorted(promoted)
    assert promoted[-1] == 1
    assert promoted.count(1) > 3, "there are writes after the promotion"


def goes_on(path: Path, in_charge: int) -> None:
    """Whoever is in charge opens the environment and finds all of it; where that is the newer program nothing of the older is left."""
    with pytest.MonkeyPatch.context() as patched:
        if in_charge:
            newer(patched)
        with contextlib.closing(mzsql.connect(path)) as con:
            coordinator = con.coordinator
            assert coordinator.env.startup.wait(PATIENCE)
            ((more,),) = con.execute("SELECT count(*) FROM t WHERE b = 100").fetchall()
            rows = [*ROWS, *[(1, 100)] * more]
            assert found(con) == expected(rows)
            con.execute("INSERT INTO t VALUES (3, 7)")
            assert found(con) == expected([*rows, (3, 7)])
            for item in coordinator.env.catalog.state.maintained:
                served = coordinator.planner.deploy(item)
                afresh = coordinator.planner.deploy(item, fresh=True)
                assert (served.mir, served.plan) == (afresh.mir, afresh.plan)
            builds = {parts_of(key)[0] for key in coordinator.env.cache.all_entries()}
            if in_charge:
                assert builds == {coordinator.env.cache.build}
                assert coordinator.env.preparations.all() == []
                hydrated = {
                    one.object_id
                    for one in coordinator.dataflows.controller.refreshes()
                    if one.kind == "hydration"
                }
                assert hydrated == set(), "what was prepared is gone on from"
