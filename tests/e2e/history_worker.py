"""A process that runs random transactions on an environment and writes down what it did, before and after: see test_e2e_histories.

Each line of its file is a JSON list: ``["begin", number, nanoseconds, [[key, value], …]]`` before a transaction, with what it will have
added, and ``["end", number, nanoseconds, "ok" | "failed" | "skewed" | "unknown", [[key, [value, …],
ordered], …]]`` after it, with what it read.
The nanoseconds are of the machine's monotonic clock, which all processes share; the wall clock is put wrong by as much as is asked for,
by one number of milliseconds or by one after another of several. What is stopped for it has the outcome "skewed": it did not happen.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import mzsql
from mzsql.oracle import BoundedClock, ClockSkew, SkewGuard
from mzsql.persist import SystemClock

#: So long a clock is wrong by as much, before it jumps.
JUMP_SECONDS = 0.4

SETUP = """
CREATE TABLE x (v int);
CREATE TABLE y (v int);
CREATE TABLE counted (v int, n bigint);
CREATE TABLE listed (k int, vs text);
INSERT INTO listed VALUES (1, '')
"""
#: One statement that reads everything but the catalog; `listed` holds a list as text, `counted` the number of rows that each row met.
READ = """
SELECT 'x', v::text, 0 FROM x UNION ALL SELECT 'y', v::text, 0 FROM y
UNION ALL SELECT 'counted', v::text, n FROM counted UNION ALL SELECT 'listed', vs, 0 FROM listed
"""

Found = list[tuple[str, list[int], bool]]
Added = list[tuple[str, int]]


def found_in(rows: list[tuple[Any, ...]]) -> Found:
    """What the rows of `READ` say."""
    values: dict[str, list[int]] = {"x": [], "y": []}
    counted = sorted((n, int(v)) for key, v, n in rows if key == "counted")
    assert [n for n, _ in counted] == list(range(len(counted))), f"rows were lost: {counted}"
    for key, text, _ in rows:
        if key in values:
            values[key].append(int(text))
    lists = [text for key, text, _ in rows if key == "listed"]
    assert len(lists) == 1, lists
    listed = [int(v) for v in lists[0].split(",") if v]
    found = [(key, sorted(vs), False) for key, vs in values.items()]
    return [*found, ("counted", [v for _, v in counted], True), ("listed", listed, True)]


class Worker:
    """Runs transactions on one connection."""

    def __init__(self, con: mzsql.Connection, seed: int, out: TextIO) -> None:
        self.con = con
        self.rng = random.Random(seed)
        self.out = out
        self.number = 0
        self.value = seed * 100_000
        self.fenced = False

    def fresh(self) -> int:
        self.value += 1
        return self.value

    def say(self, *what: object) -> None:
        self.out.write(json.dumps(what) + "\n")
        self.out.flush()

    def do(self, added: Added, act: Callable[[], Found]) -> None:
        self.number += 1
        self.say("begin", self.number, time.monotonic_ns(), added)
        outcome, found = "ok", []
        try:
            found = act()
        except mzsql.Error as failure:
            if self.con.in_transaction:
                self.con.rollback()
            # What lost a race has not happened; of anything else that is not known.
            outcome = "failed" if "could not serialize" in str(failure) else "unknown"
            if "not in charge yet" in str(failure):
                outcome = "failed"
            if "this machine's clock" in str(failure):
                outcome = "skewed"
            self.fenced = "fenced by" in str(failure)
            sys.stderr.write(f"{failure}\n")
        self.say("end", self.number, time.monotonic_ns(), outcome, found)

    def step(self) -> None:
        self.rng.choice(
            [
                self.insert,
                self.both,
                self.update,
                self.insert_select,
                self.read,
                self.reads,
                self.ddl,
            ]
        )()

    def insert(self) -> None:
        key, values = self.rng.choice("xy"), [self.fresh() for _ in range(self.rng.randrange(1, 4))]
        rows = ", ".join(f"({v})" for v in values)
        self.do([(key, v) for v in values], lambda: self.run(f"INSERT INTO {key} VALUES {rows}"))

    def both(self) -> None:
        one, two = self.fresh(), self.fresh()

        def act() -> Found:
            self.run("BEGIN")
            self.run(f"INSERT INTO x VALUES ({one})")
            self.run(f"INSERT INTO y VALUES ({two})")
            return self.run("COMMIT")

        self.do([("x", one), ("y", two)], act)

    def update(self) -> None:
        v = self.fresh()
        self.do([("listed", v)], lambda: self.run(f"UPDATE listed SET vs = vs || ',{v}'"))

    def insert_select(self) -> None:
        v = self.fresh()
        statement = f"INSERT INTO counted SELECT {v}, count(*) FROM counted"
        self.do([("counted", v)], lambda: self.run(statement))

    def ddl(self) -> None:
        v = self.fresh()
        self.do([("catalog", v)], lambda: self.run(f"CREATE VIEW made_{v} AS SELECT {v} AS v"))

    def run(self, statement: str) -> Found:
        self.con.execute(statement)
        return []

    def read(self) -> None:
        self.do([], lambda: found_in(self.con.execute(READ).fetchall()))

    def reads(self) -> None:
        """Two tables in one transaction, or the catalog."""

        def act() -> Found:
            self.run("BEGIN")
            found = []
            for key in self.rng.sample("xy", 2):
                rows = self.con.execute(f"SELECT v FROM {key}").fetchall()
                found.append((key, sorted(v for (v,) in rows), False))
            self.run("COMMIT")
            return found

        self.do([], act if self.rng.random() < 0.5 else self.catalog)

    def catalog(self) -> Found:
        names = self.con.execute("SELECT name FROM mz_catalog.mz_views WHERE name LIKE 'made_%'")
        return [("catalog", sorted(int(name.removeprefix("made_")) for (name,) in names), False)]


def tell(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def put_wrong(wrong_ms: list[int]) -> None:
    """Put the wall clock of this process wrong, by another of the numbers every so often."""
    true = SystemClock.now_ms

    def now_ms(self: SystemClock) -> int:
        return true(self) + wrong_ms[int(time.monotonic() / JUMP_SECONDS) % len(wrong_ms)]

    SystemClock.now_ms = now_ms  # type: ignore[method-assign]


def plant(fault: str) -> None:
    """Break the guard, to see that the histories notice."""
    if fault == "no-guard":
        BoundedClock.check = BoundedClock.check_applied = lambda *_: None  # type: ignore[method-assign,assignment]
        BoundedClock.__call__ = lambda self: self._now()  # type: ignore[method-assign]
    elif fault == "stops-others":
        # As it once was: what a clock has allocated is compared with that same clock, and whoever comes then is stopped.
        plant("no-guard")
        write_ts = SkewGuard.write_ts

        def stops_others(self: SkewGuard) -> int:
            if self.peek_write_ts() - self._clock._now() > 20_000:
                raise ClockSkew("the timeline is ahead of this machine's clock")
            return write_ts(self)

        SkewGuard.write_ts = stops_others  # type: ignore[method-assign]


def main(env: str, seed: str, wrong_ms: str, out: str, fault: str = "") -> None:
    """Run until stdin ends, then read everything once more."""
    put_wrong([int(ms) for ms in wrong_ms.split(",")])
    plant(fault)
    with Path(out).open("a") as file, mzsql.connect(env) as con:
        worker = Worker(con, int(seed), file)
        tell("ready")
        while sys.stdin.readline() == "on\n":
            for _ in range(5):
                worker.step()
            tell("done")
        worker.read()
        worker.do([], worker.catalog)


if __name__ == "__main__":
    main(*sys.argv[1:])
