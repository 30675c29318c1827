"""Two versions beside each other, and two processes of one of them, for random sequences of what happens to an environment, crashes between
any two writes and damage among it: the plan served is the plan that would be made afresh, answers are those of another engine, and nothing
of one that waits is anybody else's until it is promoted.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import crash_worker
import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mzsql
from mzsql.adapter.environment import opening
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.expression_cache import parts_of
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.planning.features import SystemFeatures

PATIENCE = 120.0
#: The versions that come after each other; every second one plans joins otherwise than the one before it.
VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0")

DEFINED = (
    "CREATE VIEW {name} AS SELECT a, b + {n} AS b FROM {on} WHERE a <> {n}",
    "CREATE MATERIALIZED VIEW {name} AS SELECT a, sum(b) AS b FROM {on} GROUP BY a",
    "CREATE MATERIALIZED VIEW {name} AS SELECT x.a, y.b FROM {on} AS x JOIN t AS y ON x.a = y.a JOIN t AS z ON z.a = y.a WHERE z.b > {n}",
    "CREATE INDEX {name} ON {on} (a)",
)
WHAT = st.one_of(
    st.sampled_from(DEFINED),
    st.sampled_from(["insert", "drop", "restart", "damage", "break", "open", "promote", "leave"]),
    st.sampled_from(["drop index", "switch", "second", "crash"]),
)
STEPS = st.lists(st.tuples(WHAT, st.integers(0, 9)), min_size=4, max_size=9)


class World:
    """An environment in the charge of one version, of which there may be two processes, and perhaps a later one that waits; beside them
    DuckDB with views of the same texts.
    """

    def __init__(self, path: Path, patched: pytest.MonkeyPatch) -> None:
        self.path, self._patched = path, patched
        patched.setattr(SystemFeatures, "in_force", crash_worker.features)
        self.generation = 0
        self.number = 0
        self.waiting: mzsql.Connection | None = None
        self.second: mzsql.Connection | None = None
        self.con = self._opened(0)
        self.con.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int, b int)")
        self.duck = duckdb.connect()
        self.duck.execute("CREATE TABLE t (a int, b int)")

    def _opened(self, generation: int, **options: object) -> mzsql.Connection:
        self._patched.setattr(opening, "VERSION", VERSIONS[generation])
        return mzsql.connect(self.path, deploy_generation=generation, **options)  # type: ignore[arg-type]

    # --- what happens -------------------------------------------------------------------------

    def step(self, what: str, choice: int) -> None:
        steps: dict[str, Callable[[int], None]] = {
            "insert": self._insert,
            "drop": self._drop,
            "restart": self._restart,
            "damage": self._damage,
            "break": self._break,
            "open": self._open,
            "promote": self._promote,
            "leave": self._leave,
            "drop index": self._drop_index,
            "switch": self._switch,
            "second": self._second,
            "crash": self._crash,
        }
        if what in steps:
            steps[what](choice)
        else:
            self._define(what, choice)

    def relations(self) -> list[tuple[str, str]]:
        """Names and kinds of what has rows, the table first."""
        found = self.con.execute(
            "SELECT name, type FROM mz_objects WHERE id LIKE 'u%' AND type <> 'index' ORDER BY id"
        )
        return found.fetchall()

    def _acting(self, choice: int) -> mzsql.Connection:
        """One of the processes in charge."""
        return self.second if choice % 2 and self.second is not None else self.con

    def _defining(self, text: str, choice: int) -> str:
        self.number += 1
        names = self.relations()
        on, _ = names[choice % len(names)]
        return text.format(name=f"o{self.number}", n=self.number % 4, on=on)

    def _define(self, text: str, choice: int) -> None:
        made = self._defining(text, choice)
        self._acting(choice).execute(made)
        if "INDEX" not in made:
            self.duck.execute(made.replace("MATERIALIZED ", ""))

    def _drop_index(self, choice: int) -> None:
        found = self.con.execute("SELECT name FROM mz_indexes WHERE id LIKE 'u%' ORDER BY id")
        names = [name for (name,) in found.fetchall()]
        if names:
            self._acting(choice).execute(f"DROP INDEX {names[choice % len(names)]}")

    def _switch(self, choice: int) -> None:
        """Another of the optimizer's features, for all of one build."""
        flag = "on" if choice % 3 else "off"
        self._acting(choice).execute(f"ALTER SYSTEM SET enable_join_prioritize_arranged = {flag}")

    def _second(self, _: int) -> None:
        """Another process of the version in charge comes, or goes."""
        if self.second is None:
            self.second = self._opened(self.generation, maintenance="elsewhere")
        else:
            self._close_second()

    def _crash(self, choice: int) -> None:
        """A process of the version in charge ends between two writes of a definition, while another one runs, or it is the only one."""
        made, alone = self._defining(DEFINED[choice % 4], choice), choice % 3 == 0
        if alone:
            self._close_second()
            self.con.close()
        version, generation = VERSIONS[self.generation], str(self.generation)
        done = subprocess.run(
            [sys.executable, WORKER, str(self.path), version, generation, str(choice // 2), made],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert done.returncode in (0, crash_worker.KILLED), done.stderr
        if alone:
            self.con = self._opened(self.generation)
        if "INDEX" not in made and f"o{self.number}" in {name for name, _ in self.relations()}:
            self.duck.execute(made.replace("MATERIALIZED ", ""))

    def _close_second(self) -> None:
        if self.second is not None:
            self.second.close()
            self.second = None

    def _insert(self, choice: int) -> None:
        for con in (self._acting(choice), self.duck):
            con.execute(f"INSERT INTO t VALUES ({choice % 4}, {choice}), (1, {choice + 1})")

    def _drop(self, choice: int) -> None:
        names = [one for one in self.relations() if one[1] != "table"]
        if not names:
            return
        name, kind = names[choice % len(names)]
        self.con.execute(f"DROP {kind.replace('-', ' ').upper()} {name} CASCADE")
        left = {name for name, _ in self.relations()}
        for gone, _ in names:
            if gone not in left:
                self.duck.execute(f"DROP VIEW {gone}")

    def _restart(self, _: int) -> None:
        self.con.close()
        self.con = self._opened(self.generation)

    def _damage(self, choice: int) -> None:
        """Junk in place of an entry of the one in charge, or of the one that waits."""
        con = self.waiting if choice % 2 and self.waiting is not None else self.con
        cache = con.coordinator.env.cache

        def junk(entries: object) -> None:
            keys = sorted(k for k in entries.entries() if parts_of(k)[2] in PLANS)  # type: ignore[attr-defined]
            if keys:
                entries.apply(lambda _: {keys[choice % len(keys)]: b"junk"})  # type: ignore[attr-defined]

        cache._with_map(junk)

    def _break(self, choice: int) -> None:
        """While nobody is there something happens to the cache's shard."""
        self._leave(0)
        self._close_second()
        shard = self.con.coordinator.env.cache_shard.current()
        self.con.close()
        folder = self.path / "blob" / shard
        with contextlib.closing(sqlite3.connect(self.path / "consensus.db")) as database, database:
            where = "FROM consensus WHERE shard = ?"
            if choice % 3 == 0:
                shutil.rmtree(folder, ignore_errors=True)
            elif choice % 3 == 1:
                database.execute(f"DELETE {where} AND sequence_number % 2 = 0", (shard,))
            else:
                database.execute("UPDATE consensus SET data = x'00' WHERE shard = ?", (shard,))
        self.con = self._opened(self.generation)

    def _open(self, _: int) -> None:
        """A later version is opened beside the one in charge."""
        if self.waiting is None and self.generation + 1 < len(VERSIONS):
            self.waiting = self._opened(self.generation + 1)

    def _promote(self, choice: int) -> None:
        """… and put in charge, caught up or not."""
        if self.waiting is None:
            return
        self.waiting.promote(wait=PATIENCE if choice % 2 else None)
        with pytest.raises(mzsql.OperationalError, match="fenced by"):
            self.con.execute("INSERT INTO t VALUES (0, 0)")
        for con in (self.con, self.second):
            if con is not None:
                with contextlib.suppress(mzsql.OperationalError):
                    con.close()
        self.second = None
        self.con, self.waiting = self.waiting, None
        self.generation += 1
        self.until(lambda: not self._older(), lambda: f"entries of other builds: {self._older()}")

    def _older(self) -> set[str]:
        env = self.con.coordinator.env
        return {parts_of(key)[0] for key in env.cache.all_entries()} - {env.cache.build}

    def _leave(self, _: int) -> None:
        """The one that waits ends, and what it has left is removed."""
        if self.waiting is None:
            return
        self.waiting.close()
        self.waiting = None
        env = Environment.open(locate(self.path), read_only=True)
        with contextlib.closing(env):
            env.preparations.discard()
            assert {parts_of(key)[0] for key in env.cache.all_entries()} <= {
                self.con.coordinator.env.cache.build
            }

    # --- what holds after each ----------------------------------------------------------------

    def check(self) -> None:
        for con in (self.con, self.second, self.waiting):
            if con is None:
                continue
            self._plans_as_afresh(con)
            for name, _ in self.relations():
                asked = f"SELECT a, b FROM {name} ORDER BY a, b"
                con.execute("SET statement_timeout = '60 s'")
                assert con.execute(asked).fetchall() == self.duck.execute(asked).fetchall(), name
        if self.waiting is not None:
            newest = {VERSIONS[n] for n in range(self.generation + 1)}
            assert stamps(self.con) <= newest, "one that waits has stamped something"

    def _plans_as_afresh(self, con: mzsql.Connection) -> None:
        coordinator = con.coordinator
        planner, state = coordinator.planner, coordinator.env.sync()
        for item in state.maintained:
            served, afresh = planner.deploy(item), planner.deploy(item, fresh=True)
            assert (served.mir, served.plan) == (afresh.mir, afresh.plan), item.full_name

    def until(self, done: Callable[[], bool], what: Callable[[], str]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not done():
            assert time.monotonic() < deadline, what()
            time.sleep(0.05)

    def close(self) -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(self.duck.close)
            for con in (self.con, self.second, self.waiting):
                if con is not None:
                    stack.callback(con.close)


WORKER = crash_worker.__file__
PLANS = ("local", "global", "running")


def stamps(con: mzsql.Connection) -> set[str]:
    """The versions that the environment's shards say are the newest to have changed them."""
    persist = con.coordinator.env.persist
    states = [persist.inspect(shard) for shard in persist.consensus.list_keys()]
    return {state.applier_version for state in states if state is not None}


def happens(path: Path, steps: list[tuple[str, int]]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        world = World(path, patched)
        try:
            for step in steps:
                world.step(*step)
                world.check()
        finally:
            world.close()


GROUPED, JOINED, INDEXED = DEFINED[1], DEFINED[2], DEFINED[3]


@pytest.mark.parametrize(
    "steps",
    [
        # Plans that change from one version to the next, and back, with an index that comes and goes meanwhile.
        [("insert", 1), (JOINED, 0), ("open", 0), (INDEXED, 0), ("promote", 1), ("open", 0), ("promote", 0)],
        # Objects come and go while the later one waits; it leaves, and comes again.
        [(GROUPED, 0), ("open", 0), ("insert", 2), (GROUPED, 1), ("drop", 0), ("leave", 0), ("open", 0), ("promote", 1)],
        # Whatever becomes of the cache, before and after.
        [("insert", 1), (JOINED, 0), ("break", 0), ("open", 0), ("damage", 1), ("damage", 2), ("promote", 1), ("break", 1), ("break", 2)],
        # Two processes of one version define and drop beside each other, others end between two writes, and a later version takes over.
        [
            ("insert", 1), ("second", 0), (INDEXED, 1), (JOINED, 0), ("crash", 2), ("drop index", 1), ("switch", 3), ("open", 0),
            ("crash", 5), ("promote", 1),
        ],
    ],
    ids=["changed plans", "objects come and go", "damage", "two processes and crashes"],
)  # fmt: skip
def test_versions_take_turns(tmp_path: Path, steps: list[tuple[str, int]]) -> None:
    happens(tmp_path / "env", steps)


@pytest.mark.long
@pytest.mark.timeout(300)
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_whatever_happens_to_two_versions(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    happens(tmp_path_factory.mktemp("versions") / "env", steps)


@pytest.mark.soak
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_whatever_happens_to_two_versions_of_many(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    happens(tmp_path_factory.mktemp("versions") / "env", steps)
