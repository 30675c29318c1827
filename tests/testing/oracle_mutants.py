"""Timestamp oracles with one planted fault each."""

from __future__ import annotations

import functools
import itertools
import os
import threading
import time
from typing import ClassVar

from mutants_table import ORACLE, caught_by

from mzsql.location import MAX_SEQNO, Determinate, UsageError, open_oracle
from mzsql.location.sqlite import SqliteOracle


class Oracle:
    """No fault: everything goes to an oracle in memory."""

    def __init__(self, path, timeline, now):
        self.path, self.timeline, self.now = path, timeline, now
        self.inner = self.open_inner(path, timeline, now)

    def open_inner(self, path, timeline, now):
        return open_oracle(f"mem:{path}", timeline, now)

    def write_ts(self):
        return self.inner.write_ts()

    def peek_write_ts(self):
        return self.inner.peek_write_ts()

    def read_ts(self):
        return self.inner.read_ts()

    def apply_write(self, ts):
        self.inner.apply_write(ts)

    def close(self):
        self.inner.close()


class OracleOnSqlite(Oracle):
    """No fault: everything goes to a database."""

    def open_inner(self, path, timeline, now):
        return SqliteOracle(path, timeline, now)

    def run(self, statement, *args):
        return self.inner._database.run("mutate", statement, self.timeline, *args)


ORACLE.update(Sound=Oracle, SoundOnSqlite=OracleOnSqlite)


class OwnTimestamps(Oracle):
    """Timestamps of its own in memory, without any lock."""

    kept: ClassVar = {}

    def open_inner(self, path, timeline, now):  # noqa: ARG002
        self.state = self.kept.setdefault((type(self).__name__, path, timeline), [0, 0])

    def write_ts(self):
        ts = max(self.state[1] + 1, self.now())
        if ts > MAX_SEQNO - 1:
            raise Determinate("the end")
        self.state[1] = ts
        return ts

    def peek_write_ts(self):
        return self.state[1]

    def read_ts(self):
        return self.state[0]

    def apply_write(self, ts):
        if not 0 <= ts <= MAX_SEQNO - 1:
            raise UsageError("out of range")
        self.state[:] = [max(self.state[0], ts), max(self.state[1], ts)]

    def close(self):
        pass


@caught_by("oracle", "apply_below_between_above", "two_handles", "state_machine")
class AppliesTheStaleColumn(OwnTimestamps):
    """Reads what was the write timestamp before: the write just applied is missed."""

    def apply_write(self, ts):
        read, write = self.state
        super().apply_write(ts)
        self.state[0] = max(read, min(write, ts))


@caught_by("oracle", "apply_below_between_above", "threads")
class AppliesBackwards(OwnTimestamps):
    def apply_write(self, ts):
        self.state[:] = [ts, max(self.state[1], ts)]


@caught_by("oracle", "apply_below_between_above", "promises_between_threads")
class AppliesToReadsOnly(OwnTimestamps):
    def apply_write(self, ts):
        self.state[0] = max(self.state[0], ts + 1)


@caught_by("oracle", "faults", "threads")
class DropsSomeApplies(Oracle):
    count = itertools.count(1)

    def apply_write(self, ts):
        if next(self.count) % 5:
            self.inner.apply_write(ts)


@caught_by("oracle", "two_handles")
class CachesReads(Oracle):
    """Until this handle applies: the fast oracle that is not strictly serializable."""

    cached = None

    def read_ts(self):
        if self.cached is None:
            self.cached = self.inner.read_ts()
        return self.cached

    def apply_write(self, ts):
        self.inner.apply_write(ts)
        self.cached = None


@caught_by("oracle", "processes")
class CachesReadsInTheProcess(OracleOnSqlite):
    """Coherent between all handles of one process, and stale in any other."""

    cache: ClassVar = {}
    lock = threading.Lock()

    def read_ts(self):
        with self.lock:
            key = (self.path, self.timeline)
            if key not in self.cache:
                self.cache[key] = self.inner.read_ts()
            return self.cache[key]

    def apply_write(self, ts):
        with self.lock:
            self.inner.apply_write(ts)
            self.cache.pop((self.path, self.timeline), None)


@caught_by("oracle", "promises_between_threads", "threads")
class AllocatesInTwoSteps(OwnTimestamps):
    def write_ts(self):
        ts = max(self.state[1] + 1, self.now())
        if ts > MAX_SEQNO - 1:
            raise Determinate("the end")
        time.sleep(0.0002)
        self.state[1] = ts
        return ts


@caught_by("oracle", "processes")
class AllocatesUnderALockOfTheProcess(OracleOnSqlite):
    lock = threading.Lock()

    def write_ts(self):
        with self.lock:
            ts = max(self.inner.peek_write_ts() + 1, self.now())
            time.sleep(0.001)
            self.run("UPDATE timestamp_oracle SET write_ts = ?2 WHERE timeline = ?1", ts)
            return ts


@caught_by("oracle", "killed_processes")
class AppliesInTwoStatements(OracleOnSqlite):
    def apply_write(self, ts):
        set_to = "UPDATE timestamp_oracle SET {0} = max({0}, ?2) WHERE timeline = ?1"
        self.run(set_to.format("read_ts"), ts)
        time.sleep(0.003)
        self.run(set_to.format("write_ts"), ts)


@caught_by("oracle", "peek_allocates_nothing", "fresh")
class PeekAllocates(Oracle):
    def peek_write_ts(self):
        return self.inner.write_ts()


@caught_by("oracle", "frozen_clock")
class FollowsTheClockBack(OwnTimestamps):
    def write_ts(self):
        self.state[1] = self.now() if self.now() != self.state[1] else self.state[1] + 1
        return self.state[1]


@caught_by("oracle", "fresh", "frozen_clock", "threads")
class IgnoresTheClock(OwnTimestamps):
    def write_ts(self):
        self.state[1] += 1
        return self.state[1]


@caught_by("oracle", "fresh")
class ReadsWhatIsNotApplied(Oracle):
    def read_ts(self):
        return self.inner.peek_write_ts()


@caught_by("oracle", "timelines_are_apart")
class FoldsTimelines(Oracle):
    def open_inner(self, path, timeline, now):
        return open_oracle(f"mem:{path}", timeline.lower(), now)


@caught_by("oracle", "two_handles", "reopened")
class AllocatesByBlocks(Oracle):
    """Each handle takes ten timestamps at once."""

    def __init__(self, path, timeline, now):
        super().__init__(path, timeline, now)
        self.block = []

    def write_ts(self):
        if not self.block:
            first = self.inner.write_ts()
            for _ in range(9):
                self.inner.write_ts()
            self.block = list(range(first, first + 10))
        return self.block.pop(0)


@caught_by("oracle", "clocks_of_two_handles")
class KeepsTheFirstClock(OwnTimestamps):
    clocks: ClassVar = {}

    def write_ts(self):
        self.now = self.clocks.setdefault((self.path, self.timeline), self.now)
        return super().write_ts()


@caught_by("oracle", "end_of_time")
class HasNoEnd(OwnTimestamps):
    def write_ts(self):
        self.state[1] = max(self.state[1] + 1, self.now())
        return self.state[1]


@caught_by("oracle", "refused_timestamps")
class AppliesAnything(OwnTimestamps):
    def apply_write(self, ts):
        self.state[:] = [max(self.state[0], ts), max(self.state[1], ts)]


@caught_by("oracle", "reopened")
class DiesWithItsHandle(OwnTimestamps):
    def close(self):
        self.state[:] = [0, 0]


@caught_by("oracle", "closing")
class OracleFailsUntyped(Oracle):
    closed = False

    def close(self):
        self.closed = True

    def read_ts(self):
        if self.closed:
            raise ValueError("Cannot operate on a closed database.")
        return self.inner.read_ts()


@caught_by("oracle", "options")
class TakesAnyOption(Oracle):
    any_option = True


@caught_by("oracle", "forked")
class IsItsParentsAlone(OracleOnSqlite):
    """Its connection is of the process that opened it."""

    def __init__(self, path, timeline, now):
        super().__init__(path, timeline, now)
        self.process = os.getpid()

    def apply_write(self, ts):
        if os.getpid() != self.process:
            raise RuntimeError("the connection is another process's")
        self.inner.apply_write(ts)


@caught_by("oracle", "forked")
class RefusesChildren(OracleOnSqlite):
    """What a forked process asks for is refused, which is no lie and no help."""

    def __init__(self, path, timeline, now):
        super().__init__(path, timeline, now)
        self.process = os.getpid()
        for name in ("write_ts", "read_ts", "peek_write_ts", "apply_write"):
            setattr(self, name, functools.partial(self.refused, getattr(self, name)))

    def refused(self, act, *args):
        if os.getpid() != self.process:
            raise Determinate("open already in another process")
        return act(*args)


@caught_by("oracle", "fast_clock")
class TellsSeconds(OracleOnSqlite):
    """Its clock is right, in the wrong unit."""

    def clock_ms(self):
        return self.inner.clock_ms() // 1000


@caught_by("oracle", "fast_clock")
class TellsAnHourMore(OracleOnSqlite):
    """Its clock is that of the machine that is wrong."""

    def clock_ms(self):
        return self.inner.clock_ms() + 3_600_000
