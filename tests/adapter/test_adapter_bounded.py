"""What a process keeps in memory does not grow with how long it has been at work.

Everything that this process holds is looked through, so that a map which is new is held to this without being named here. What may grow
stands in `BOUNDED`, with the number that ends it.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections import Counter, deque
from collections.abc import Iterator

import pytest

import mzsql
from mzsql.adapter.dataflows import dataflows
from mzsql.adapter.peek import plan_cache
from mzsql.adapter.planning import planner
from mzsql.adapter.system import statement_log
from mzsql.catalog import audit
from mzsql.compute.replica.scheduling import retiring
from mzsql.compute.replica.step import deltas
from mzsql.expr import evaluate
from mzsql.frontend.parse import parse
from mzsql.persist import ages
from mzsql.storage import storage_collections

Sizes = Counter[str]
_MAPS = (dict, set, list, deque, weakref.WeakKeyDictionary, weakref.WeakValueDictionary)

#: What grows up to a number, and the number.
BOUNDED: dict[str, int] = {
    "PlanCache._kept": plan_cache.CAPACITY,
    "Planner._views": 2 * planner._SWEEP_LEAST,
    "Evaluator._constants": evaluate._CACHED,
    "Ages._met": ages._NAMES,
    "Collections._gone": storage_collections._REMEMBERED,
    "Deltas._kept": deltas.KEPT,
    "RecentTexts._once": parse.MOST_ONCE,
    "Delta.facts": deltas.KEPT * 2,  # the tables have two columns
}
#: What time ends, or that is no memory of this process.
ENDS = {
    "RecentTexts._kept": "its texts are bounded in characters",
    "SnapshotCache._kept": "its rows are bounded in bytes",
    "PlannedQuery._statements": "one for each kept query that is small, and one that is not",
    "ManagedCollection._waiting": "written within seconds, which is longer than a few rounds take; no more than most_waiting",
    "Mirror._changed": "as ManagedCollection._waiting",
    "WalState.last_write": "writes of dropped tables are known for an hour",
    "MemConsensus._logs": "the store's: what tells later comers that a shard has ended",
}


def _owned() -> Iterator[tuple[str, object]]:
    """Every value that an object of mzsql's has, with its class and name."""
    gc.collect()
    for one in gc.get_objects():
        kind = type(one)
        room = getattr(kind, "__module__", None)
        if not (isinstance(room, str) and room.startswith("mzsql.")):
            continue
        names = {*getattr(one, "__dict__", ()), *getattr(kind, "__struct_fields__", ())}
        for base in kind.__mro__:
            slots = base.__dict__.get("__slots__", ())
            names.update((slots,) if isinstance(slots, str) else slots)
        for name in names:
            yield f"{kind.__name__}.{name}", getattr(one, name, None)


def _of_modules() -> Iterator[tuple[str, object]]:
    for room, module in list(sys.modules.items()):
        if room.startswith("mzsql."):
            yield from ((f"{room}:{name}", value) for name, value in list(vars(module).items()))


def sizes() -> Sizes:
    """How much the maps, sets and lists of each name hold together, and the caches of functions that have no bound."""
    found: Sizes = Counter()
    for name, value in (*_owned(), *_of_modules()):
        if isinstance(value, _MAPS) and getattr(value, "maxlen", None) is None:
            found[name] += len(value)
        information = getattr(value, "cache_info", None)
        if information is not None and information().maxsize is None:
            found[f"{name}()"] += information().currsize
    return found


class Place:
    """An environment in memory where everything is begun, used and ended again."""

    def __init__(self) -> None:
        self.con = mzsql.connect(blob="mem:", consensus="mem:")
        self.con.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
        self.rounds = 0

    def round(self) -> None:
        """Names and constants that no round before had."""
        self.rounds += 1
        n = self.rounds
        with self.con.cursor() as cursor:
            for statement in (
                f"CREATE SCHEMA s{n}",
                f"SET search_path = s{n}",
                f"CREATE TABLE t{n} (a int, b text)",
                f"INSERT INTO t{n} VALUES ({n}, 'x{n}')",
                f"CREATE OR REPLACE VIEW kept AS SELECT {n} AS x",
                "SELECT x FROM kept",
                f"CREATE MATERIALIZED VIEW v{n} AS SELECT b, count(*) AS c{n} FROM t{n} GROUP BY b",
                f"CREATE VIEW p{n} AS SELECT a + {n} AS z FROM t{n}",
                f"CREATE INDEX i{n} ON p{n} (z)",
                f"INSERT INTO t{n} VALUES (1, 'x{n}'), (2, 'y')",
                f"SELECT * FROM v{n} WHERE c{n} > {n}",
                f"SELECT * FROM p{n} WHERE z = {n}",
                f"UPDATE t{n} SET b = 'q{n}' WHERE a = {n}",
                f"BEGIN; DECLARE c{n} CURSOR FOR SUBSCRIBE t{n}; FETCH 1 c{n}; COMMIT",
                f"PREPARE q{n} AS SELECT $1 + {n}",
                f"EXECUTE q{n} (1)",
                f"DEALLOCATE q{n}",
                f"CREATE TYPE l{n} AS LIST (ELEMENT TYPE = int4)",
                f"CREATE ROLE r{n}; COMMENT ON TABLE t{n} IS 'c{n}'; DROP ROLE r{n}",
                f"CREATE CLUSTER k{n} SIZE '1'; DROP CLUSTER k{n}",
                f"EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW v{n}",
                "SET search_path = public",
                f"DROP SCHEMA s{n} CASCADE",
            ):
                cursor.execute(statement)
            for wrong in (f"SELECT {n} / 0", f"SELECT nothing{n}", f"SELECT FROM FROM {n}"):
                with pytest.raises(mzsql.Error):
                    cursor.execute(wrong)
        with mzsql.connect(blob="mem:", consensus="mem:") as other:
            other.execute(f"SET application_name = 'a{n}'")
            other.execute(f"SELECT {n}")


def _grown(rounds: int) -> dict[str, list[int]]:
    """What held more after every so many rounds, by one a round at least."""
    place = Place()
    try:
        seen = []
        for _ in range(3):
            for _ in range(rounds):
                place.round()
            # What was let go of in the background is let go of.
            place.con.execute("SELECT * FROM mz_internal.mz_frontiers").fetchall()
            seen.append(sizes())
    finally:
        place.con.close()
    first, second, third = seen
    grows = {
        name: [first[name], second[name], third[name]]
        for name in third
        if third[name] - second[name] >= rounds and second[name] - first[name] >= rounds
    }
    return {
        name: held
        for name, held in grows.items()
        if name not in ENDS and held[-1] > BOUNDED.get(name, 0)
    }


@pytest.fixture(autouse=True)
def _soon_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """What keeps the latest of something is full within the first rounds."""
    monkeypatch.setattr(audit, "MOST_EVENTS", 2)
    monkeypatch.setattr(statement_log, "MOST_STATEMENTS", 2)


def test_nothing_grows_with_how_long_a_process_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataflows, "_RETIRE_SECONDS", 0)
    monkeypatch.setattr(retiring, "RETIRE_SECONDS", 0)
    assert _grown(4) == {}


def test_a_map_that_grows_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[int, int] = {}
    monkeypatch.setattr(planner, "_planted", kept, raising=False)

    def planted(self: Place) -> None:
        kept[len(kept)] = 0
        self.rounds += 1

    monkeypatch.setattr(Place, "round", planted)
    assert _grown(2) == {"mzsql.adapter.planning.planner:_planted": [2, 4, 6]}


@pytest.mark.soak
def test_nothing_grows_over_many_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dataflows, "_RETIRE_SECONDS", 0)
    monkeypatch.setattr(retiring, "RETIRE_SECONDS", 0)
    assert _grown(25) == {}
