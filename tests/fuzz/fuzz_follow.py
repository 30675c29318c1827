"""Random queries that are kept up to date while their tables change: what their subscriptions say adds up to what PostgreSQL computes.

Promise: the dataflows are those of materialized views, hydrated and stepped by DuckDB in this process, so that no Spark is asked. A
difference is told as statements that run as they stand.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from fuzz_changes import random_change
from fuzz_engines import Failure, Worlds, bag
from fuzz_made import Options
from fuzz_queries import Queries
from fuzz_schema import random_tables

import mzsql

#: What a dataflow maintains.
MAINTAINED = Options(windows=False, rare=False, recursion=False, depth=1)
Bag = Counter[tuple[object, ...]]


def followed(worlds: Worlds, seed: int, queries: int = 6, changes: int = 4) -> list[str]:
    """What differs, for each query that does."""
    rng = random.Random(f"follow {seed}")
    tables = random_tables(rng, 2, rare=False)
    worlds.load(tables)
    texts = [
        str(Queries(rng, tables, replace(MAINTAINED, depth=rng.choice([0, 1, 1, 2]))).top())
        for _ in range(queries)
    ]
    told = [s + ";" for table in tables for s in table.statements()]
    cursors = [worlds.ours.subscribe(f"SUBSCRIBE ({sql}) WITH (PROGRESS)") for sql in texts]
    expected = [_expected(worlds, texts)]
    for _ in range(changes):
        change = random_change(rng, tables)
        told.append(change + ";")
        worlds.both(change)
        expected.append(_expected(worlds, texts))
    found = []
    for number, (sql, cursor) in enumerate(zip(texts, cursors, strict=True)):
        how = _difference(cursor, [(ts, answers[number]) for ts, answers in expected])
        cursor.close()
        if how:
            found.append("\n".join([f"-- follow {seed}", *told, f"{sql};", f"-- {how}"]))
    return found


def _expected(worlds: Worlds, texts: list[str]) -> tuple[int, list[Bag]]:
    """A time after all changes up to now, and PostgreSQL's answers."""
    ts = worlds.ours.execute("SELECT count(*) FROM t0, t1").timestamp
    assert ts is not None
    answers = []
    for sql in texts:
        rows = worlds.theirs(sql)
        assert not isinstance(rows, Failure), (sql, rows)
        answers.append(bag(rows))
    return ts, answers


def _difference(cursor: mzsql.Cursor, expected: list[tuple[int, Bag]]) -> str:
    """Where the sum of a subscription is not what it should be; empty: nowhere."""
    try:
        updates = _until(cursor, expected[-1][0])
    except mzsql.Error as error:
        return f"fails: {error}"
    for number, (ts, answer) in enumerate(expected):
        total: Bag = Counter()
        for row in updates:
            if row[0] <= ts:
                (key,) = bag([row[3:]])
                total[key] += row[2]
        total = Counter({key: count for key, count in total.items() if count})
        if total != answer:
            more, less = total.copy(), answer.copy()
            more.subtract(answer)
            less.subtract(total)
            return f"after change {number}: too many {+more}, missing {+less}"
    return ""


def _until(cursor: mzsql.Cursor, ts: int) -> list[tuple]:
    """The updates of a subscription up to the time that it says is complete."""
    updates: list[tuple] = []
    while True:
        row = cursor.fetchone()
        if row is None:
            return updates  # of a query that can change no more
        if not row[1]:
            updates.append(tuple(row))
        elif row[0] > ts:
            return updates
