"""Consensus stores with one planted fault each."""

from __future__ import annotations

import itertools
import os
import threading
import time
from pathlib import Path
from typing import ClassVar

from mutants_table import CONSENSUS, caught_by

from mzsql.location import MAX_SEQNO, UsageError, open_consensus
from mzsql.location.sqlite import SqliteConsensus


class Consensus:
    """No fault: everything goes to a Consensus in memory."""

    def __init__(self, path):
        self.inner = self.open_inner(path)

    def open_inner(self, path):
        return open_consensus(f"mem:{path}")

    def head(self, key):
        return self.inner.head(key)

    def compare_and_set(self, key, expected, new):
        return self.inner.compare_and_set(key, expected, new)

    def scan(self, key, from_seqno, limit):
        return self.inner.scan(key, from_seqno, limit)

    def truncate(self, key, seqno):
        return self.inner.truncate(key, seqno)

    def list_keys(self):
        return self.inner.list_keys()

    def wait(self, key, after_seqno, timeout):
        return self.inner.wait(key, after_seqno, timeout)

    def close(self):
        self.inner.close()


class OnSqlite(Consensus):
    """No fault: everything goes to a database."""

    def open_inner(self, path):
        return SqliteConsensus(path)


CONSENSUS.update(Sound=Consensus, SoundOnSqlite=OnSqlite)


class OwnLog(Consensus):
    """Logs of its own in memory, to which `put` writes whatever it is told."""

    logs: ClassVar = {}

    def __init__(self, path):
        self.mine = self.logs.setdefault((type(self).__name__, path), {})

    def put(self, key, new):
        self.mine.setdefault(key, {})[new.seqno] = new

    def head(self, key):
        log = self.mine.get(key)
        return log[max(log)] if log else None

    def compare_and_set(self, key, expected, new):
        check(expected, new.seqno)
        head = self.head(key)
        if (None if head is None else head.seqno) != expected:
            return False
        self.put(key, new)
        return True

    def scan(self, key, from_seqno, limit):
        if limit < 0:
            raise UsageError("limit")
        log = dict(self.mine.get(key, {}))
        return [log[n] for n in sorted(log) if n >= from_seqno][:limit]

    def truncate(self, key, seqno):
        head = self.head(key)
        if head is None or seqno > head.seqno:
            raise UsageError("beyond the head")
        gone = [n for n in list(self.mine[key]) if n < seqno]
        return sum(self.mine[key].pop(n, None) is not None for n in gone)

    def list_keys(self):
        return iter([key for key, log in self.mine.items() if log])

    def wait(self, key, after_seqno, timeout):
        end = time.monotonic() + timeout
        while True:
            head = self.head(key)
            if head is not None and head.seqno > after_seqno:
                return True
            if time.monotonic() >= end:
                return False
            time.sleep(0.001)

    def close(self):
        pass


def check(expected, seqno):
    if not 0 <= seqno <= MAX_SEQNO or seqno != (0 if expected is None else expected + 1):
        raise UsageError("not the next sequence number")
    if expected is not None and expected < 0:
        raise UsageError("out of range")


@caught_by("consensus", "contention", "threads")
class ChecksThenActs(OwnLog):
    def put(self, key, new):
        time.sleep(0.0002)
        super().put(key, new)


@caught_by("consensus", "processes")
class ChecksThenActsUnderALockOfTheProcess(OnSqlite):
    lock = threading.Lock()

    def compare_and_set(self, key, expected, new):
        check(expected, new.seqno)
        with self.lock:
            head = self.inner.head(key)
            if (None if head is None else head.seqno) != expected:
                return False
            time.sleep(0.001)
            self.inner._database.run(
                "put", "INSERT OR REPLACE INTO consensus VALUES (?, ?, ?)", key, *new
            )
            return True


@caught_by("consensus", "compare_and_set", "faults")
class IgnoresTheExpectation(OwnLog):
    def compare_and_set(self, key, expected, new):
        check(expected, new.seqno)
        head = self.head(key)
        self.put(key, new if head is None else new._replace(seqno=head.seqno + 1))
        return True


@caught_by("consensus", "compare_and_set")
class TakesTheSameDataForItsOwn(Consensus):
    """A retry made blindly idempotent: an entry that is there already counts as won."""

    def compare_and_set(self, key, expected, new):
        won = self.inner.compare_and_set(key, expected, new)
        return won or new in self.inner.scan(key, new.seqno, 1)


@caught_by("consensus", "keys_are_apart")
class LosesAnswers(Consensus):
    """A blind retry inside: every third that is committed is reported as lost."""

    count = itertools.count(1)

    def compare_and_set(self, key, expected, new):
        return self.inner.compare_and_set(key, expected, new) and bool(next(self.count) % 3)


@caught_by("consensus", "faults", "threads")
class ForgetsAcknowledged(Consensus):
    count = itertools.count(1)

    def compare_and_set(self, key, expected, new):
        if next(self.count) % 7 == 0:
            head = self.inner.head(key)
            return (None if head is None else head.seqno) == expected
        return self.inner.compare_and_set(key, expected, new)


@caught_by("consensus", "refused_steps")
class AllowsGaps(OwnLog):
    def compare_and_set(self, key, expected, new):
        head = self.head(key)
        if (None if head is None else head.seqno) != expected:
            return False
        self.put(key, new)
        return True


@caught_by("consensus", "two_handles")
class CachesScans(Consensus):
    """Until this handle appends."""

    def __init__(self, path):
        super().__init__(path)
        self.cache = {}

    def compare_and_set(self, key, expected, new):
        won = self.inner.compare_and_set(key, expected, new)
        if won:
            self.cache = {}
        return won

    def truncate(self, key, seqno):
        self.cache = {}
        return self.inner.truncate(key, seqno)

    def scan(self, key, from_seqno, limit):
        asked = (key, from_seqno, limit)
        if asked not in self.cache:
            self.cache[asked] = self.inner.scan(*asked)
        return self.cache[asked]


@caught_by("consensus", "two_handles")
class CachesHeads(Consensus):
    """Until this handle appends: a head may lag, but not for good."""

    def __init__(self, path):
        super().__init__(path)
        self.cache = {}

    def compare_and_set(self, key, expected, new):
        self.cache.pop(key, None)
        return self.inner.compare_and_set(key, expected, new)

    def head(self, key):
        return self.cache.setdefault(key, self.inner.head(key))


@caught_by("consensus", "compare_and_set", "threads")
class HeadIsTheOldest(Consensus):
    def head(self, key):
        found = self.inner.scan(key, 0, 1)
        return found[0] if found else None


@caught_by("consensus", "truncate")
class TruncatesTheHead(OwnLog):
    def truncate(self, key, seqno):
        removed = super().truncate(key, seqno)
        if seqno == max(self.mine[key]):
            self.mine[key].clear()
        return removed


@caught_by("consensus", "truncate", "threads")
class CountsBySeqno(Consensus):
    def truncate(self, key, seqno):
        self.inner.truncate(key, seqno)
        return seqno


@caught_by("consensus", "truncate", "empty", "state_machine")
class TruncatesAnything(Consensus):
    def truncate(self, key, seqno):
        try:
            return self.inner.truncate(key, seqno)
        except UsageError:
            return 0


@caught_by("consensus", "scan_limits", "long_log")
class ScansBackwards(Consensus):
    def scan(self, key, from_seqno, limit):
        return self.inner.scan(key, from_seqno, limit)[::-1]


@caught_by("consensus", "scan_limits")
class ScansWithoutLimit(Consensus):
    def scan(self, key, from_seqno, limit):
        return self.inner.scan(key, from_seqno, max(limit, 3))


@caught_by("consensus", "long_log")
class ScansAHundred(Consensus):
    def scan(self, key, from_seqno, limit):
        return self.inner.scan(key, from_seqno, min(limit, 100))


@caught_by("consensus", "keys_are_apart")
class ListsLongLogsOnly(Consensus):
    def list_keys(self):
        return iter([k for k in self.inner.list_keys() if len(self.inner.scan(k, 0, 2)) > 1])


@caught_by("consensus", "odd_keys")
class FoldsKeys(Consensus):
    def compare_and_set(self, key, expected, new):
        return self.inner.compare_and_set(key.lower(), expected, new)

    def scan(self, key, from_seqno, limit):
        return self.inner.scan(key.lower(), from_seqno, limit)


@caught_by("consensus", "values")
class StripsZeros(Consensus):
    def compare_and_set(self, key, expected, new):
        stripped = new._replace(data=new.data.rstrip(b"\0"))
        return self.inner.compare_and_set(key, expected, stripped)


@caught_by("consensus", "reopened", "two_handles", "processes")
class AppendsBehind(OwnLog):
    """Each handle has the log it read at first and what it appended itself."""

    def __init__(self, path):
        super().__init__(path)
        self.mine = {}


@caught_by("consensus", "closing")
class ConsensusFailsUntyped(Consensus):
    closed = False

    def close(self):
        self.closed = True

    def head(self, key):
        if self.closed:
            raise ValueError("Cannot operate on a closed database.")
        return self.inner.head(key)


@caught_by("consensus", "scans_of_many_keys")
class ScansManyFromTheStart(Consensus):
    def scan_many(self, starts, limit):
        return {key: self.inner.scan(key, 0, limit) for key in starts}


@caught_by("consensus", "scans_of_many_keys")
class ScansManyUpToOneLimit(Consensus):
    """The limit is that of all entries together."""

    def scan_many(self, starts, limit):
        found = {}
        for key, start in starts.items():
            found[key] = self.inner.scan(key, start, limit)
            limit -= len(found[key])
        return found


@caught_by("consensus", "wait_times_out")
class WaitsForNothing(Consensus):
    def wait(self, key, after_seqno, timeout):  # noqa: ARG002
        return True


@caught_by("consensus", "wait_times_out")
class WaitsEvenIfThere(Consensus):
    def wait(self, key, after_seqno, timeout):
        time.sleep(min(timeout, 2.0))
        return self.inner.wait(key, after_seqno, 0.0)


@caught_by("consensus", "wait_wakes")
class WaitMisses(Consensus):
    """Nothing wakes whoever waits."""

    def wait(self, key, after_seqno, timeout):
        if not self.inner.wait(key, after_seqno, 0.0):
            time.sleep(timeout)
        return self.inner.wait(key, after_seqno, 0.0)


@caught_by("consensus", "wait_wakes")
class WaitHearsItselfOnly(Consensus):
    """Woken by appends of its own handle."""

    def __init__(self, path):
        super().__init__(path)
        self.appended = threading.Event()

    def compare_and_set(self, key, expected, new):
        won = self.inner.compare_and_set(key, expected, new)
        self.appended.set()
        return won

    def wait(self, key, after_seqno, timeout):
        if not self.inner.wait(key, after_seqno, 0.0):
            self.appended.clear()
            self.appended.wait(timeout)
        return self.inner.wait(key, after_seqno, 0.0)


@caught_by("consensus", "wait_wakes")
class WakesOne(Consensus):
    """Of several that wait on a handle only one is woken."""

    def __init__(self, path):
        super().__init__(path)
        self.turn = threading.Lock()

    def wait(self, key, after_seqno, timeout):
        if not self.turn.acquire(timeout=timeout):
            return False
        try:
            found = self.inner.wait(key, after_seqno, timeout)
            if timeout > 0.1:
                time.sleep(timeout)
            return found
        finally:
            self.turn.release()


@caught_by("consensus", "killed_processes")
class LeavesItsLock(OnSqlite):
    """Takes turns by a file that whoever is killed leaves behind."""

    def __init__(self, path):
        super().__init__(path)
        self.lock = f"{path}.turn"

    def compare_and_set(self, key, expected, new):
        check(expected, new.seqno)
        while True:
            try:
                os.close(os.open(self.lock, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                time.sleep(0.001)
            else:
                break
        try:
            time.sleep(0.003)
            return self.inner.compare_and_set(key, expected, new)
        finally:
            Path(self.lock).unlink()


@caught_by("consensus", "long_log", "state_machine", "faults")
class AcknowledgesWhatItDrops(Consensus):
    """Now and then; a caller that believes it waits for ever for the log to have what it was told it has."""

    count = itertools.count(1)

    def compare_and_set(self, key, expected, new):
        head = self.inner.head(key)
        if head is not None and head.seqno == expected and next(self.count) % 40 == 0:
            return True
        return self.inner.compare_and_set(key, expected, new)


@caught_by("consensus", "contention", "two_handles")
class HeadsStayAsTheyWere(Consensus):
    """A handle sees its own entries and never another's."""

    def __init__(self, path):
        super().__init__(path)
        self.heads = {}

    def head(self, key):
        if key not in self.heads:
            self.heads[key] = self.inner.head(key)
        return self.heads[key]

    def compare_and_set(self, key, expected, new):
        won = self.inner.compare_and_set(key, expected, new)
        if won:
            self.heads[key] = new
        return won


@caught_by("consensus", "options")
class TakesAnyOption(Consensus):
    any_option = True


@caught_by("consensus", "forked")
class IsItsParentsAlone(OnSqlite):
    """Its connection is of the process that opened it."""

    def __init__(self, path):
        super().__init__(path)
        self.process = os.getpid()

    def scan(self, key, from_seqno, limit):
        if os.getpid() != self.process:
            raise RuntimeError("the connection is another process's")
        return self.inner.scan(key, from_seqno, limit)
