"""Backends with one planted fault each, as a plugin: ``mutant:NAME:PATH``. The kit must catch every one of them."""

from __future__ import annotations

import fcntl
import itertools
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from mzsql.location import (
    MAX_SEQNO,
    Determinate,
    UsageError,
    hookimpl,
    open_blob,
    open_consensus,
    open_oracle,
)
from mzsql.location.file import FileBlob
from mzsql.location.sqlite import SqliteConsensus, SqliteOracle

BLOB, CONSENSUS, ORACLE = {}, {}, {}
CAUGHT_BY = {}
"""Of each mutant, as ``kind.Name``, the cases that must catch it."""


def caught_by(kind, *cases):
    def register(mutant):
        {"blob": BLOB, "consensus": CONSENSUS, "oracle": ORACLE}[kind][mutant.__name__] = mutant
        CAUGHT_BY[f"{kind}.{mutant.__name__}"] = cases
        return mutant

    return register


class Blob:
    """No fault: everything goes to a Blob in memory."""

    def __init__(self, path):
        self.inner = self.open_inner(path)

    def open_inner(self, path):
        return open_blob(f"mem:{path}")

    def get(self, key):
        return self.inner.get(key)

    def get_range(self, key, offset, length):
        return self.inner.get_range(key, offset, length)

    def set(self, key, value):
        self.inner.set(key, value)

    def delete(self, key):
        return self.inner.delete(key)

    def delete_many(self, keys):
        for key in keys:
            self.inner.delete(key)

    def list_keys_and_metadata(self, prefix):
        return self.inner.list_keys_and_metadata(prefix)

    def close(self):
        self.inner.close()


class OnFiles(Blob):
    """No fault: everything goes to files."""

    def open_inner(self, path):
        return FileBlob(path)

    def spark_path(self, key):
        return self.inner.spark_path(key)

    def make_durable(self, keys):
        self.inner.make_durable(keys)

    def list_unfinished(self):
        return self.inner.list_unfinished()

    def abort_unfinished(self, unfinished):
        self.inner.abort_unfinished(unfinished)


BLOB.update(Sound=Blob, SoundOnFiles=OnFiles)


@caught_by("blob", "absent")
class AbsentIsEmpty(Blob):
    def get(self, key):
        return self.inner.get(key) or b""


@caught_by("blob", "empty_value")
class EmptyIsAbsent(Blob):
    def get(self, key):
        return self.inner.get(key) or None


@caught_by("blob", "set_get_overwrite")
class KeepsTheFirst(Blob):
    def set(self, key, value):
        if self.inner.get(key) is None:
            self.inner.set(key, value)


@caught_by("blob", "faults", "threads")
class DropsSome(Blob):
    count = itertools.count(1)

    def set(self, key, value):
        if next(self.count) % 9:
            self.inner.set(key, value)


@caught_by("blob", "reopened")
class BlobDiesWithItsHandle(Blob):
    def __init__(self, path):
        super().__init__(path)
        self.mine = []

    def set(self, key, value):
        self.inner.set(key, value)
        self.mine.append(key)

    def close(self):
        for key in self.mine:
            self.inner.delete(key)


@caught_by("blob", "set_get_overwrite")
class ListsTheFirstSize(Blob):
    sizes: ClassVar = {}

    def set(self, key, value):
        self.inner.set(key, value)
        self.sizes.setdefault(key, len(value))

    def list_keys_and_metadata(self, prefix):
        for key, size in self.inner.list_keys_and_metadata(prefix):
            yield key, self.sizes.get(key, size)


@caught_by("blob", "delete_sizes", "state_machine", "threads")
class LosesDeletes(Blob):
    def delete(self, key):
        value = self.inner.get(key)
        return None if value is None else len(value)


@caught_by("blob", "delete_sizes", "large_value")
class ForgetsSizes(Blob):
    def delete(self, key):
        self.inner.delete(key)


@caught_by("blob", "state_machine")
class DeletesByPrefix(Blob):
    def delete(self, key):
        size = self.inner.delete(key)
        for other, _ in self.inner.list_keys_and_metadata(key):
            self.inner.delete(other)
        return size


@caught_by("blob", "large_value")
class CutsOff(Blob):
    def set(self, key, value):
        self.inner.set(key, value[: 16 << 20])


@caught_by("blob", "list_by_prefix")
class ListsByPart(Blob):
    def list_keys_and_metadata(self, prefix):
        for key, size in self.inner.list_keys_and_metadata(prefix):
            if not prefix or prefix.endswith("/") or key[len(prefix) :][:1] in ("", "/"):
                yield key, size


@caught_by("blob", "list_by_prefix")
class ListsTwice(Blob):
    def list_keys_and_metadata(self, prefix):
        found = list(self.inner.list_keys_and_metadata(prefix))
        return iter(found + found[-1:])


@caught_by("blob", "list_many")
class ListsOnePage(Blob):
    def list_keys_and_metadata(self, prefix):
        return itertools.islice(self.inner.list_keys_and_metadata(prefix), 1000)


@caught_by("blob", "list_left_early", "list_many")
class ListsOnlyWhileNothingChanges(Blob):
    def list_keys_and_metadata(self, prefix):
        before = list(self.inner.list_keys_and_metadata(prefix))
        for one in before:
            if list(self.inner.list_keys_and_metadata(prefix)) != before:
                raise Determinate("the listing changed")
            yield one


@caught_by("blob", "odd_keys")
class FoldsCase(Blob):
    def get(self, key):
        return self.inner.get(key.lower())

    def set(self, key, value):
        self.inner.set(key.lower(), value)

    def delete(self, key):
        return self.inner.delete(key.lower())


@caught_by("blob", "odd_keys")
class ComposesUnicode(Blob):
    """As a file system that normalizes names."""

    def set(self, key, value):
        self.inner.set(key.replace("e\u0301", "\u00e9"), value)

    def get(self, key):
        return self.inner.get(key.replace("e\u0301", "\u00e9"))


@caught_by("blob", "refused_keys")
class TakesAnyKey(Blob):
    def set(self, key, value):
        self.inner.set(key.replace("..", "dots").replace("//", "/").strip("/") or "root", value)


@caught_by("blob", "ranges")
class RangesOffByOne(Blob):
    def get_range(self, key, offset, length):
        return self.inner.get_range(key, offset, length + 1)


@caught_by("blob", "delete_many")
class DeletesManyUntilOneIsAbsent(Blob):
    def delete_many(self, keys):
        for key in keys:
            if self.inner.delete(key) is None:
                return


@caught_by("blob", "two_handles", "threads")
class CachesValues(Blob):
    def __init__(self, path):
        super().__init__(path)
        self.cache = {}

    def get(self, key):
        if key not in self.cache:
            self.cache[key] = self.inner.get(key)
        return self.cache[key]

    def set(self, key, value):
        self.inner.set(key, value)
        self.cache[key] = value

    def delete(self, key):
        self.cache.pop(key, None)
        return self.inner.delete(key)


@caught_by("blob", "two_handles")
class CachesListings(Blob):
    """Until this handle writes."""

    def __init__(self, path):
        super().__init__(path)
        self.cache = {}

    def set(self, key, value):
        self.inner.set(key, value)
        self.cache = {}

    def delete(self, key):
        self.cache = {}
        return self.inner.delete(key)

    def list_keys_and_metadata(self, prefix):
        if prefix not in self.cache:
            self.cache[prefix] = list(self.inner.list_keys_and_metadata(prefix))
        return iter(self.cache[prefix])


@caught_by("blob", "two_handles", "processes")
class WritesBehind(OnFiles):
    """Acknowledges what it has not written, and writes it with the next one."""

    def __init__(self, path):
        super().__init__(path)
        self.waiting = {}

    def set(self, key, value):
        self.inner.get(key)  # refuses malformed keys
        for each in self.waiting.items():
            self.inner.set(*each)
        self.waiting = {key: value}

    def get(self, key):
        return self.waiting.get(key) or self.inner.get(key)


@caught_by("blob", "closing")
class ClosesOnce(Blob):
    closed = False

    def close(self):
        if self.closed:
            raise UsageError("closed already")
        self.closed = True


@caught_by("blob", "closing")
class FailsUntyped(Blob):
    closed = False

    def close(self):
        self.closed = True

    def get(self, key):
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self.inner.get(key)


@caught_by("blob", "closing")
class ClosesForAll(Blob):
    closed: ClassVar = set()

    def __init__(self, path):
        super().__init__(path)
        self.path = path

    def close(self):
        self.closed.add(self.path)

    def get(self, key):
        if self.path in self.closed:
            raise Determinate("closed")
        return self.inner.get(key)


@caught_by("blob", "unfinished_uploads")
class ListsFinishedUploads(OnFiles):
    def list_unfinished(self):
        from mzsql.location import Unfinished

        for key, size in self.inner.list_keys_and_metadata(""):
            yield Unfinished(key, key, 0, size)


@caught_by("blob", "paths_for_spark")
class EscapesPaths(OnFiles):
    def spark_path(self, key):
        return self.inner.spark_path(key.replace(" ", "%20").replace("/", "%2F"))


@caught_by("blob", "adoption")
class AdoptsNothing(OnFiles):
    def make_durable(self, keys):
        pass


@caught_by("blob", "threads_apart")
class SharesABuffer(Blob):
    def set(self, key, value):
        self.buffer = value
        time.sleep(0.0005)
        self.inner.set(key, self.buffer)


@caught_by("blob", "atomic_overwrites", "threads")
class WritesInPieces(Blob):
    def set(self, key, value):
        self.inner.set(key, value[: len(value) // 2])
        time.sleep(0.0005)
        self.inner.set(key, value)


@caught_by("blob", "processes")
class CachesInTheProcess(OnFiles):
    """Coherent between all handles of one process, and stale in any other."""

    cache: ClassVar = {}
    lock = threading.Lock()

    def get(self, key):
        with self.lock:
            if key not in self.cache:
                self.cache[key] = self.inner.get(key)
            return self.cache[key]

    def get_range(self, key, offset, length):
        value = self.get(key)
        return None if value is None else value[offset : offset + length]

    def set(self, key, value):
        with self.lock:
            self.inner.set(key, value)
            self.cache[key] = value

    def delete(self, key):
        with self.lock:
            self.cache.pop(key, None)
            return self.inner.delete(key)


@caught_by("blob", "killed_processes")
class WritesInPlace(OnFiles):
    """Under a lock between processes, so that only a writer killed half way leaves a torn object."""

    def __init__(self, path):
        super().__init__(path)
        Path(path).mkdir(parents=True, exist_ok=True)
        self.lock = Path(path).parent / (Path(path).name + ".lock")

    def locked(self, how, act):
        with self.lock.open("w") as lock:
            fcntl.flock(lock, how)
            return act()

    def set(self, key, value):
        def write():
            path = Path(self.inner.spark_path(key))
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb", buffering=0) as file:
                for start in range(0, len(value), 10_000):
                    file.write(value[start : start + 10_000])
                    time.sleep(0.001)

        self.locked(fcntl.LOCK_EX, write)

    def get(self, key):
        return self.locked(fcntl.LOCK_SH, lambda: self.inner.get(key))

    def get_range(self, key, offset, length):
        return self.locked(fcntl.LOCK_SH, lambda: self.inner.get_range(key, offset, length))

    def delete(self, key):
        return self.locked(fcntl.LOCK_EX, lambda: self.inner.delete(key))

    def list_keys_and_metadata(self, prefix):
        found = self.locked(fcntl.LOCK_SH, lambda: list(self.inner.list_keys_and_metadata(prefix)))
        return iter(found)


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


@caught_by("consensus", "two_handles", "threads")
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


@caught_by("oracle", "faults", "promises_between_threads", "threads")
class DropsSomeApplies(Oracle):
    count = itertools.count(1)

    def apply_write(self, ts):
        if next(self.count) % 5:
            self.inner.apply_write(ts)


@caught_by("oracle", "two_handles", "promises_between_threads")
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


@caught_by("oracle", "clocks_of_two_handles", "threads", "faults")
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


def _named(url, mutants):
    if url.scheme != "mutant":
        return None, ""
    name, _, path = url.path.partition(":")
    return mutants.get(name), path


@hookimpl
def mzsql_open_blob(url):
    mutant, path = _named(url, BLOB)
    return mutant(path) if mutant else None


@hookimpl
def mzsql_open_consensus(url):
    mutant, path = _named(url, CONSENSUS)
    return mutant(path) if mutant else None


@hookimpl
def mzsql_open_oracle(url, timeline: str, now: Callable[[], int]):
    mutant, path = _named(url, ORACLE)
    return mutant(path, timeline, now) if mutant else None
