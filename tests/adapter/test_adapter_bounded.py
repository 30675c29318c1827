"""What a process keeps does not grow with the statements that it has run: only with what there is."""

from __future__ import annotations

import gc
from collections import Counter, OrderedDict, deque
from pathlib import Path

import mzsql

#: Kept for later on purpose, up to a number that stands beside it.
_UP_TO_A_NUMBER = {
    ("PlannedQuery", "_statements"),
    ("Planner", "_views"),
    # Of tables that were dropped within the hour.
    ("WalState", "last_write"),
    # The last ones of each shard that is open, up to a number.
    ("Shard", "_own_seqnos"),
    ("Shard", "_own_batches"),
    ("PlanCache", "_kept"),
    ("Collections", "_gone"),
    ("SnapshotCache", "_kept"),
    ("Evaluator", "_constants"),
}
ROUNDS = 20


def _sizes() -> Counter[tuple[str, str]]:
    """How much is in the containers that objects of mzsql have, by class and attribute."""
    gc.collect()
    found: Counter[tuple[str, str]] = Counter()
    for one in gc.get_objects():
        kind = type(one)
        if not str(kind.__module__).startswith("mzsql."):
            continue
        names = list(getattr(one, "__dict__", ()))
        names += [n for n in getattr(kind, "__slots__", ()) if isinstance(n, str)]
        for name in names:
            value = getattr(one, name, None)
            if isinstance(value, dict | list | set | deque | OrderedDict):
                found[kind.__name__, name] += len(value)
    return found


def _round(con: mzsql.Connection, number: int) -> None:
    con.execute(f"CREATE TABLE t{number} (a int, b text)")
    con.execute(f"CREATE VIEW v{number} AS SELECT a + {number} AS x, upper(b) AS y FROM t{number}")
    con.execute(f"INSERT INTO t{number} SELECT {number}, 'text {number}'")
    con.execute(f"UPDATE t{number} SET a = a + {number}")
    assert con.execute(f"SELECT x FROM v{number}").fetchall() == [(3 * number,)]
    assert con.execute("SELECT x FROM kept").fetchall() == [(number,)]
    con.execute(f"CREATE OR REPLACE VIEW kept AS SELECT {number + 1} AS x")
    cursor = con.cursor()
    cursor.execute(f"PREPARE p AS SELECT a FROM t{number}")
    cursor.execute("DEALLOCATE p")
    cursor.close()
    con.execute(f"DROP VIEW v{number}")
    con.execute(f"DROP TABLE t{number}")


def test_what_is_kept_follows_what_there_is(tmp_path: Path) -> None:
    with mzsql.connect(tmp_path / "env") as con:
        con.execute("CREATE VIEW kept AS SELECT 0 AS x")
        for number in range(ROUNDS):
            _round(con, number)
        before = _sizes()
        for number in range(ROUNDS, 2 * ROUNDS):
            _round(con, number)
        after = _sizes()
    grown = {
        key: (before[key], size)
        for key, size in after.items()
        if size >= before[key] + ROUNDS and key not in _UP_TO_A_NUMBER
    }
    assert not grown
