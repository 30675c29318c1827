"""Deploy generations: a higher one reads beside the lower ones until it is promoted, and then fences them for good."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import mzsql
from mzsql.adapter.commit.group_commit import GroupCommit
from mzsql.adapter.dataflows import preflight
from mzsql.adapter.dataflows.dataflows import Dataflows
from mzsql.adapter.environment import opening
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.planning.planner import Planner
from mzsql.compute.peek import index
from mzsql.compute.replica.arrangements import arrangement_shards
from mzsql.oracle.errors import OracleReadOnly
from mzsql.repr.errors import ObjectInUse, Unsupported
from mzsql.storage import WriteAheadLog


@pytest.fixture
def env(tmp_path: Path) -> str:
    return str(tmp_path / "env")


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as opened:
        yield opened


def opened(stack: contextlib.ExitStack, con: mzsql.Connection) -> mzsql.Connection:
    stack.callback(con.close)
    return con


def fenced(by: int, of: int) -> Any:
    message = rf"fenced by deploy generation {by}, promoted by \S+ \d+ at .* UTC: this process is of generation {of}"
    return pytest.raises(mzsql.OperationalError, match=message)


def test_a_higher_generation_reads_until_it_is_promoted(
    env: str, stack: contextlib.ExitStack
) -> None:
    old = opened(stack, mzsql.connect(env))
    old.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    new = opened(stack, mzsql.connect(env, deploy_generation=1))
    assert new.execute("SELECT a FROM t").fetchall() == [(1,)]
    for statement in ("INSERT INTO t VALUES (2)", "CREATE TABLE u (a int)", "DROP TABLE t"):
        with pytest.raises(
            mzsql.Error, match=r"generation 1 is not in charge yet, generation 0 is"
        ):
            new.execute(statement)
    # what the old one goes on to do is seen
    old.execute("INSERT INTO t VALUES (2); CREATE TABLE u (a int)")
    assert new.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
    new.promote()
    new.execute("INSERT INTO t VALUES (3); INSERT INTO u VALUES (4); CREATE TABLE v (a int)")
    assert new.execute("SELECT sum(a) FROM t").fetchall() == [(6,)]


def test_the_fenced_hear_of_it_at_their_next_statement_for_good(
    env: str, stack: contextlib.ExitStack
) -> None:
    old = opened(stack, mzsql.connect(env))
    reading = opened(stack, mzsql.connect(env, read_only=True))
    writing = opened(stack, mzsql.connect(env))
    old.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    assert reading.execute("SELECT a FROM t").fetchall() == [(1,)]
    writing.execute("BEGIN; INSERT INTO t VALUES (2)")
    new = opened(stack, mzsql.connect(env, deploy_generation=7))
    new.promote()
    for _ in range(2):
        for con, statement in (
            (old, "SELECT 1"),
            (old, "INSERT INTO t VALUES (3)"),
            (old, "CREATE TABLE u (a int)"),
            (reading, "SELECT a FROM t"),
        ):
            with fenced(7, 0):
                con.execute(statement)
    with fenced(7, 0):
        writing.execute("COMMIT")
    assert new.execute("SELECT a FROM t").fetchall() == [(1,)]
    # lower ones do not come back, the same and those that name none do
    for lower in (0, 6):
        with fenced(7, lower):
            mzsql.connect(env, deploy_generation=lower)
    for same in (7, None):
        with mzsql.connect(env, deploy_generation=same) as con:
            con.execute("INSERT INTO t VALUES (5)")
    assert new.execute("SELECT count(*) FROM t").fetchall() == [(3,)]


def test_promoting_again_changes_nothing_and_a_lower_one_cannot(
    env: str, stack: contextlib.ExitStack
) -> None:
    opened(stack, mzsql.connect(env)).execute("CREATE TABLE t (a int)")
    second, third = (opened(stack, mzsql.connect(env, deploy_generation=n)) for n in (2, 3))
    third.promote()
    third.promote()
    third.execute("INSERT INTO t VALUES (1)")
    with fenced(3, 2):
        second.promote()
    with fenced(3, 2):
        second.execute("SELECT * FROM t")


def test_a_new_environment_begins_with_the_generation_that_makes_it(env: str) -> None:
    with mzsql.connect(env, deploy_generation=4) as con:
        con.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    with fenced(4, 3):
        mzsql.connect(env, deploy_generation=3)
    with pytest.raises(
        mzsql.Error, match=r"deploy_generation must be a whole number of at least 0 .*, not int -1"
    ):
        mzsql.connect(env, deploy_generation=-1)


def test_all_processes_of_the_promoted_generation_begin_to_write(
    env: str, stack: contextlib.ExitStack
) -> None:
    with mzsql.connect(env) as con:
        con.execute("CREATE TABLE t (a int)")
    waiting = Environment.open(locate(env), deploy_generation=1)
    stack.callback(waiting.close)
    assert waiting.read_only
    new = opened(stack, mzsql.connect(env, deploy_generation=1))
    new.promote()
    with pytest.raises(OracleReadOnly):
        waiting.oracle.write_ts()
    waiting.sync()
    assert waiting.oracle.write_ts() > 0
    assert not waiting.read_only
    waiting.require_writable()


def test_one_opened_to_read_only_promotes_nothing(env: str, stack: contextlib.ExitStack) -> None:
    opened(stack, mzsql.connect(env)).execute("CREATE TABLE t (a int)")
    con = opened(stack, mzsql.connect(env, deploy_generation=1, read_only=True))
    assert con.execute("SELECT * FROM t").fetchall() == []
    with pytest.raises(mzsql.Error, match="read-only"):
        con.promote()


def test_a_commit_under_way_at_the_promotion_is_not_done_after_it(
    env: str, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process may be stopped anywhere between its look at the catalog and its append."""
    old = opened(stack, mzsql.connect(env))
    old.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    new = opened(stack, mzsql.connect(env, deploy_generation=1))
    real = WriteAheadLog.commit
    slept: list[bool] = []

    def commit(self: WriteAheadLog, *args: Any, **rest: Any) -> Any:
        if self is old.coordinator.env.wal and not slept:
            slept.append(True)
            new.promote()
        return real(self, *args, **rest)

    monkeypatch.setattr(WriteAheadLog, "commit", commit)
    with fenced(1, 0):
        old.execute("INSERT INTO t VALUES (2)")
    assert slept
    assert isinstance(old.coordinator.commits, GroupCommit)
    assert new.execute("SELECT a FROM t").fetchall() == [(1,)]


def test_a_newer_program_has_planned_everything_when_it_is_promoted(
    env: str, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened(stack, mzsql.connect(env))
    old.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
    old.execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
    old.execute("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
    assert old.execute("SELECT n FROM m").fetchall() == [(1,)]
    monkeypatch.setattr(opening, "VERSION", "999.0.0")
    new = opened(stack, mzsql.connect(env, deploy_generation=1))
    old.execute("CREATE MATERIALIZED VIEW later AS SELECT max(a) AS n FROM t")
    deadline = time.monotonic() + 60
    while new.plans_from_cache != (0, 2):
        assert time.monotonic() < deadline, new.plans_from_cache
        time.sleep(0.1)
    assert new.execute("SELECT n FROM m").fetchall() == [(1,)]
    # What it has read and leased is none of its own: the older program goes on with all of it.
    old.execute("INSERT INTO t VALUES (3); CREATE TABLE u (b int); INSERT INTO u VALUES (4)")
    assert old.execute("SELECT m.n, later.n, b FROM m, later, u").fetchall() == [(2, 3, 4)]
    assert stamps(new) == {"0.1.0"}
    new.promote()
    new.execute("SET statement_timeout = '5 min'; INSERT INTO t VALUES (5)")
    assert new.execute("SELECT m.n, later.n FROM m, later").fetchall() == [(3, 5)]
    assert new.plans_from_cache == (2, 4)
    assert new.coordinator.dataflows.leads
    assert "999.0.0" in stamps(new)
    with pytest.raises(mzsql.OperationalError, match=r"999\.0\.0|fenced"):
        old.execute("INSERT INTO t VALUES (6)")
    with contextlib.suppress(mzsql.OperationalError):
        old.close()  # what it leased there it can let go of no more


def stamps(con: mzsql.Connection) -> set[str]:
    """The versions that the environment's shards say are the newest to have changed them."""
    persist = con.coordinator.env.persist
    states = [persist.inspect(shard) for shard in persist.consensus.list_keys()]
    return {state.applier_version for state in states if state is not None}


def test_a_newer_version_goes_on_from_the_arrangements_of_the_older_one(
    env: str, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plans of the same format are the same arrangements: nothing hydrates again, and the newer one's plans are ready before it leads."""
    old = opened(stack, mzsql.connect(env))
    old.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int, b int)")
    old.execute("INSERT INTO t VALUES (1, 2), (1, 3), (2, 4)")
    old.execute("CREATE MATERIALIZED VIEW sums AS SELECT a, sum(b) AS s FROM t GROUP BY a")
    assert sorted(old.execute("SELECT a, s FROM sums").fetchall()) == [(1, 5), (2, 4)]
    before = old.execute("SELECT object_id, shard_id FROM mz_internal.mz_arrangements").fetchall()
    assert before
    monkeypatch.setattr(opening, "VERSION", "0.1.9")
    new = opened(stack, mzsql.connect(env, deploy_generation=1))
    assert new.coordinator.env.startup.wait(60)
    new.promote()
    old.close()
    new.execute("INSERT INTO t VALUES (2, 6)")
    assert sorted(new.execute("SELECT a, s FROM sums").fetchall()) == [(1, 5), (2, 10)]
    kinds = "SELECT kind FROM mz_internal.mz_refreshes ORDER BY occurred_at"
    assert new.execute(kinds).fetchall() == [("hydration",), ("step",)], "hydrated before, once"
    after = new.execute("SELECT object_id, shard_id FROM mz_internal.mz_arrangements").fetchall()
    assert after == before
    hits, asked = new.plans_from_cache
    assert (hits, asked) == (1, 2), "it was planned once, before the promotion"


def of_another_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on arrangements have other names, as those of a program that lays them out otherwise."""

    def named(fingerprint: str, workers: int, *_: str) -> str:
        return f"{fingerprint}/{workers}/another"

    for room in (arrangement_shards, preflight, index):
        monkeypatch.setattr(room, "arrangement_name", named)
    monkeypatch.setattr(opening, "VERSION", "0.2.0")


def caught_up(con: mzsql.Connection, generation: int) -> None:
    """Wait until a generation that waits is caught up with everything."""
    env = con.coordinator.env
    deadline = time.monotonic() + 120
    while lacking := env.preparations.lacking(env.sync(), generation):
        assert time.monotonic() < deadline, lacking
        time.sleep(0.05)


def hydrated_by(con: mzsql.Connection) -> set[str]:
    """What this process has hydrated since it leads."""
    return {
        one.object_id
        for one in con.coordinator.dataflows.controller.refreshes()
        if one.kind == "hydration"
    }


def test_what_has_changed_is_hydrated_beside_the_deployment_in_charge_and_gone_on_from(
    env: str, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened(stack, mzsql.connect(env))
    old.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int, b int)")
    old.execute("INSERT INTO t VALUES (1, 2), (1, 3), (2, 4)")
    old.execute("CREATE INDEX t_a ON t (a)")
    old.execute("CREATE MATERIALIZED VIEW sums AS SELECT a, sum(b) AS s FROM t GROUP BY a")
    old.execute("CREATE MATERIALIZED VIEW top AS SELECT max(s) AS s FROM sums")
    old.execute("CREATE MATERIALIZED VIEW small AS SELECT a FROM t WHERE b < 3")
    assert old.execute("SELECT s FROM top").fetchall() == [(5,)]
    before = {*old.coordinator.env.catalog.state.arrangements.items()}
    of_another_format(monkeypatch)
    new = opened(stack, mzsql.connect(env, deploy_generation=1))
    old.execute("INSERT INTO t VALUES (1, 10)")
    caught_up(new, 1)
    # Nothing of it is anybody's but its own, and both answer.
    assert {*old.coordinator.env.catalog.sync().arrangements.items()} == before
    assert stamps(new) == {"0.1.0"}
    old.execute("INSERT INTO t VALUES (2, 20)")
    for con in (old, new):
        assert sorted(con.execute("SELECT a, s FROM sums").fetchall()) == [(1, 15), (2, 24)]
    standings = new.coordinator.env.preparations.of(1).standings.values()
    assert sorted({one.why for one in standings}) == [
        "has no arrangements",
        "its plan or its format is another: hydrated, and up to date",
    ]
    new.promote()
    new.execute("INSERT INTO t VALUES (3, 30)")
    assert new.execute("SELECT s FROM top").fetchall() == [(30,)]
    assert sorted(new.execute("SELECT a, s FROM sums").fetchall()) == [(1, 15), (2, 24), (3, 30)]
    assert new.execute("SELECT b FROM t WHERE a = 3").fetchall() == [(30,)]
    assert hydrated_by(new) == set(), "what was hydrated beside is gone on from"
    # What the older one has left is its build's no more, and nothing waits.
    assert new.coordinator.env.preparations.all() == []
    assert {key.partition("/")[0] for key in new.coordinator.env.cache.all_entries()} == {
        new.coordinator.env.cache.build
    }
    with contextlib.suppress(mzsql.OperationalError):
        old.close()


def test_what_was_prepared_and_is_not_promoted_is_removed_without_a_trace(
    env: str, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened(stack, mzsql.connect(env))
    old.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int, b int)")
    old.execute("CREATE MATERIALIZED VIEW sums AS SELECT a, sum(b) AS s FROM t GROUP BY a")
    old.execute("INSERT INTO t VALUES (1, 2)")
    assert old.execute("SELECT s FROM sums").fetchall() == [(2,)]
    with monkeypatch.context() as changed:
        of_another_format(changed)
        new = mzsql.connect(env, deploy_generation=1)
        caught_up(new, 1)
        preparations = new.coordinator.env.preparations
        made = set(preparations.of(1).arrangements.values())
        assert made
        with pytest.raises(ObjectInUse, match=r"still waits for deploy generation 1"):
            preparations.discard()
        new.close()
        with contextlib.closing(Environment.open(locate(env), read_only=True)) as looking:
            assert not looking.preparations.of(1).alive
            with (
                contextlib.closing(Environment.open(locate(env), deploy_generation=1)) as one,
                pytest.raises(ObjectInUse, match="no process prepares deploy generation 1"),
            ):
                one.promote(0.0)
            plans, arrangements_gone = looking.preparations.discard()
            assert (plans, arrangements_gone) == (1, len(made))
            assert all(looking.persist.inspect(shard).finalized for shard in made)
    with (
        contextlib.closing(Environment.open(locate(env), read_only=True)) as looking,
        pytest.raises(ObjectInUse, match="is in charge"),
    ):
        looking.preparations.discard()
    assert stamps(old) == {"0.1.0"}
    old.execute("INSERT INTO t VALUES (1, 3)")
    assert old.execute("SELECT s FROM sums").fetchall() == [(5,)]


def test_a_shard_that_a_waiting_newer_version_makes_is_one_of_the_version_in_charge(
    env: str, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any view the older program has no expression cache yet, and a table that was never written has no shard."""
    old = opened(stack, mzsql.connect(env))
    old.execute("CREATE TABLE t (a int)")
    monkeypatch.setattr(opening, "VERSION", "0.2.0")
    new = opened(stack, mzsql.connect(env, deploy_generation=1))
    assert all(key.startswith("0.2.0+") for key in new.coordinator.env.cache.all_entries())
    assert new.execute("SELECT a FROM t").fetchall() == []
    assert stamps(new) == {"0.1.0"}
    old.execute("ALTER SYSTEM SET step_engine = 'duckdb'; INSERT INTO t VALUES (1)")
    old.execute("CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM t")
    assert old.execute("SELECT n FROM m").fetchall() == [(1,)]
    damage = "SELECT count(*) FROM mz_internal.mz_expression_cache_damage"
    assert old.execute(damage).fetchall() == [(0,)]


def test_what_the_deployment_in_charge_has_left_unhydrated_keeps_no_promotion_waiting(
    env: str, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be hydrated beside is, though nobody writes it; what reads that waits for whoever is in charge next, and that is said."""
    old = mzsql.connect(env)
    old.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int, b int)")
    old.execute("INSERT INTO t VALUES (1, 2), (1, 3), (2, 4)")
    old.execute("CREATE MATERIALIZED VIEW sums AS SELECT a, sum(b) AS s FROM t GROUP BY a")
    assert old.execute("SELECT max(s) FROM sums").fetchall() == [(5,)]
    with monkeypatch.context() as killed:
        killed.setattr(Dataflows, "_install", lambda *_: None)
        old.execute(
            "CREATE MATERIALIZED VIEW top AS SELECT s % 2 AS o, max(s) AS s FROM sums GROUP BY 1"
        )
        old.execute("CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM top")
        old.close()
    monkeypatch.setattr(opening, "VERSION", "0.2.0")
    new = opened(stack, mzsql.connect(env, deploy_generation=1))
    caught_up(new, 1)
    standings = new.coordinator.env.preparations.standings(new.coordinator.env.sync(), 1)
    assert {name.rpartition(".")[2]: one.why for name, one in standings.items()} == {
        "sums": "goes on from the arrangements of the deployment in charge",
        "top": "its plan or its format is another: hydrated, and up to date",
        "above": "hydrated after the promotion: materialize.public.top, which it reads, was not brought there before the process that ran "
        "the dataflows ended",
    }
    assert list(new.coordinator.env.promote(60)) == ["materialize.public.above"]
    new.execute("INSERT INTO t VALUES (2, 20)")
    assert new.execute("SELECT max(s), max(n) FROM top, above").fetchall() == [(24, 2)]


def test_what_reads_a_view_that_no_replica_maintains_keeps_no_promotion_waiting(
    env: str, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened(stack, mzsql.connect(env))
    old.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int)")
    old.execute("CREATE CLUSTER empty REPLICAS ()")
    old.execute("CREATE MATERIALIZED VIEW below IN CLUSTER empty AS SELECT DISTINCT a FROM t")
    old.execute("CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM below")
    monkeypatch.setattr(opening, "VERSION", "0.2.0")
    new = opened(stack, mzsql.connect(env, deploy_generation=1))
    caught_up(new, 1)
    later = new.coordinator.env.promote(60)
    why = "materialize.public.below, which it reads, is on a cluster without replicas"
    assert later == {"materialize.public.above": f"hydrated after the promotion: {why}"}
    new.execute("CREATE CLUSTER REPLICA empty.r (SIZE '1'); INSERT INTO t VALUES (1)")
    assert new.execute("SELECT n FROM above").fetchall() == [(1,)]
    with contextlib.suppress(mzsql.OperationalError):
        old.close()


def test_what_a_deployment_cannot_run_is_said_at_once_and_nothing_is_promoted(
    env: str, stack: contextlib.ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = opened(stack, mzsql.connect(env))
    old.execute("ALTER SYSTEM SET step_engine = 'duckdb'; CREATE TABLE t (a int)")
    old.execute("CREATE MATERIALIZED VIEW m AS SELECT max(a) AS m FROM t")
    monkeypatch.setattr(opening, "VERSION", "0.2.0")

    def deploy(*_: Any, **__: Any) -> Any:
        raise Unsupported("max is not what it was")

    with monkeypatch.context() as lacking:
        lacking.setattr(Planner, "deploy", deploy)
        new = opened(stack, mzsql.connect(env, deploy_generation=1))
        message = r"generation 1 cannot run 1 objects \(materialize.public.m: cannot be run: max is not what it was\)"
        with pytest.raises(mzsql.OperationalError, match=message):
            new.promote()
    old.execute("INSERT INTO t VALUES (1)")
    assert old.execute("SELECT m FROM m").fetchall() == [(1,)]


def test_of_two_waiting_processes_of_one_build_the_one_with_the_claim_runs_its_replicas(
    env: str, stack: contextlib.ExitStack
) -> None:
    opened(stack, mzsql.connect(env)).execute("CREATE TABLE t (a int)")
    waiting = [
        stack.enter_context(
            contextlib.closing(Environment.open(locate(env), deploy_generation=generation))
        )
        for generation in (1, 2)
    ]
    first, second = (one.preparations for one in waiting)

    def run() -> tuple[bool, bool]:
        return first.runs("u1"), second.runs("u1")

    assert run() == (False, False)
    assert first.claim(1)
    assert run() == (True, False)
    # It has not noticed yet that it has lost the claim to one of a higher generation, and ends no hold any more.
    assert second.claim(2)
    assert run() == (False, True)
    second.released()
    assert run() == (False, False)
