"""Consensus and timestamp oracle in a SQLite file: ``sqlite:./env/consensus.db``; both may share a file.

Promise: any number of threads and processes on one machine; every acknowledged change was fsynced (WAL mode,
synchronous=FULL). A compare-and-set, and each oracle operation, is a single statement and therefore atomic. The
trade-off: one writer at a time. The others wait for the lock: half a second in Consensus, whose callers retry until
their own deadline, a minute in the oracle.
"""

from __future__ import annotations

import contextlib
import itertools
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import SplitResult

from mzsql.location.connections import Database
from mzsql.location.errors import Determinate
from mzsql.location.hookspecs import Serves, hookimpl
from mzsql.location.keys import check_limit, check_step, check_truncate, check_ts
from mzsql.location.protocols import MAX_SEQNO, Consensus, TimestampOracle, Versioned
from mzsql.location.urls import local_path, local_url
from mzsql.location.watch import Watch, watch_directory

_CONSENSUS_BUSY_SECONDS = 0.5
"""Seconds that a Consensus statement waits for the lock; its callers have a deadline and retry within it."""
_ORACLE_BUSY_SECONDS = 60.0
"""The same for the oracle, whose callers do not retry."""
_POLL_SECONDS = 0.004
"""Seconds between looks for other processes' commits, where the system does not notify of file writes, or this process
writes too.
"""
_WATCHED_SECONDS = 0.1
"""The same where it does notify: a notification might be missed."""
_LIVELY_PAUSE = 0.001
_LIVELY_SECONDS = 0.05
"""After a notification, short pauses are used for so many seconds."""
_LATE_PAUSE = 0.005
_LATE_SECONDS = 0.5
"""For so many seconds after that, medium pauses, for a commit whose fsync takes long: nothing notifies of its end."""

_MOST_KEYS = 400
"""So many keys are asked for by one statement: SQLite before 3.32 takes no more than 999 parameters."""

_CONSENSUS_SCHEMA = """
CREATE TABLE IF NOT EXISTS consensus (
    shard TEXT NOT NULL,
    sequence_number INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (shard, sequence_number)
)
"""


class SqliteConsensus:
    """A Consensus store in the table ``consensus`` of the file ``path``."""

    def __init__(self, path: str | Path) -> None:
        self._changed = threading.Condition()
        # For keys that somebody waits for: the number of waiters, and the newest seqno known.
        self._waited: Counter[str] = Counter()
        self._heads: dict[str, int] = {}
        self._wrote_at = float("-inf")
        self._polling = False
        self._watch: Watch | None = None
        self._closed = False
        self._database = Database(
            path,
            _CONSENSUS_SCHEMA,
            _CONSENSUS_BUSY_SECONDS,
            interrupt=self._interrupt,
            renew=self._renew,
        )

    def _interrupt(self) -> None:
        """End waits, since the process is about to fork."""
        with self._changed:
            self._changed.notify_all()
            if self._watch is not None:
                self._watch.wake()

    def _renew(self) -> None:
        """Drop what belongs to the parent process; closing the watch here does not affect the parent's."""
        self._changed = threading.Condition()
        self._waited, self._heads = Counter(), {}
        self._polling = False
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def head(self, key: str) -> Versioned | None:
        """The newest entry, or `None`."""
        _, rows = self._database.run(
            "read the head",
            "SELECT sequence_number, data FROM consensus WHERE shard = ?"
            " ORDER BY sequence_number DESC LIMIT 1",
            key,
        )
        return Versioned(*rows[0]) if rows else None

    def compare_and_set(self, key: str, expected: int | None, new: Versioned) -> bool:
        """Append ``new`` iff the newest seqno is ``expected``: one statement, which takes the write lock before it
        reads.
        """
        check_step(key, expected, new.seqno)
        changed, _ = self._database.run(
            "compare and set",
            "INSERT INTO consensus (shard, sequence_number, data) SELECT ?1, ?2, ?3"
            " WHERE (SELECT max(sequence_number) FROM consensus WHERE shard = ?1) IS ?4",
            key,
            new.seqno,
            new.data,
            expected,
        )
        if changed != 1:
            return False
        self._wrote_at = time.monotonic()
        with self._changed:
            if self._note(key, new.seqno) and self._watch is not None:
                self._watch.wake()
        return True

    def _note(self, key: str, head: int) -> bool:
        """Record a key's newest seqno and wake its waiters; whether there are any. The lock is held."""
        if key not in self._waited:
            return False
        self._heads[key] = max(head, self._heads.get(key, head))
        self._changed.notify_all()
        return True

    def scan(self, key: str, from_seqno: int, limit: int) -> list[Versioned]:
        """At most ``limit`` entries from ``from_seqno`` on."""
        check_limit(limit)
        _, rows = self._database.run(
            "scan",
            "SELECT sequence_number, data FROM consensus WHERE shard = ? AND sequence_number >= ?"
            " ORDER BY sequence_number LIMIT ?",
            key,
            from_seqno,
            min(limit, MAX_SEQNO),
        )
        return [Versioned(*row) for row in rows]

    def scan_many(self, starts: Mapping[str, int], limit: int) -> dict[str, list[Versioned]]:
        """For each key, at most ``limit`` entries from its seqno on: one statement for some hundred keys."""
        check_limit(limit)
        found: dict[str, list[Versioned]] = {}
        asked = iter(starts.items())
        while some := list(itertools.islice(asked, _MOST_KEYS)):
            _, rows = self._database.run(
                "scan",
                f"WITH asked (shard, start) AS (VALUES {', '.join(['(?, ?)'] * len(some))})"
                " SELECT shard, sequence_number, data FROM asked JOIN consensus USING (shard)"
                " WHERE sequence_number IN (SELECT sequence_number FROM consensus AS log"
                " WHERE log.shard = asked.shard AND log.sequence_number >= asked.start"
                " ORDER BY log.sequence_number LIMIT ?) ORDER BY shard, sequence_number",
                *itertools.chain.from_iterable(some),
                min(limit, MAX_SEQNO),
            )
            for key, seqno, data in rows:
                found.setdefault(key, []).append(Versioned(seqno, data))
        return found

    def truncate(self, key: str, seqno: int) -> int:
        """Remove the entries below ``seqno``; how many were removed."""
        _, rows = self._database.run(
            "truncate", "SELECT max(sequence_number) FROM consensus WHERE shard = ?", key
        )
        # The newest seqno only grows, so this check still holds when the deletion runs.
        check_truncate(key, seqno, rows[0][0])
        removed, _ = self._database.run(
            "truncate", "DELETE FROM consensus WHERE shard = ? AND sequence_number < ?", key, seqno
        )
        return removed

    def list_keys(self) -> Iterator[str]:
        """Every key that has an entry."""
        _, rows = self._database.run("list keys", "SELECT DISTINCT shard FROM consensus")
        return iter([row[0] for row in rows])

    def wait(self, key: str, after_seqno: int, timeout: float) -> bool:
        """Block until there is an entry beyond ``after_seqno``: at once when this handle writes it, else within some
        milliseconds.

        Of all waiting threads one looks for other processes' commits, for all keys that are waited for; commits to
        other keys cost nothing.
        """
        end = time.monotonic() + timeout
        with (
            self._database.guard("wait"),
            self._database.lend() as connection,
            self._waiting(key),
        ):
            version = _data_version(connection)
            self._look(connection, [key])
            return self._sleep_until(connection, version, key, after_seqno, end)

    @contextlib.contextmanager
    def _waiting(self, key: str) -> Iterator[None]:
        with self._changed:
            changed, waited, heads = self._changed, self._waited, self._heads
            waited[key] += 1
        try:
            yield
        finally:
            with changed:
                waited[key] -= 1
                if not waited[key]:
                    del waited[key]
                    heads.pop(key, None)

    def _look(self, connection: sqlite3.Connection, keys: Sequence[str]) -> None:
        """Read the newest seqnos of keys."""
        rows = connection.execute(
            "SELECT shard, max(sequence_number) FROM consensus"
            f" WHERE shard IN ({', '.join('?' * len(keys))}) GROUP BY shard",
            keys,
        ).fetchall()
        with self._changed:
            for key, head in rows:
                if head != self._heads.get(key):
                    self._note(key, head)

    def _sleep_until(
        self, connection: sqlite3.Connection, version: int, key: str, after: int, end: float
    ) -> bool:
        """Whether ``key`` is beyond ``after`` before ``end``; commits after data version ``version`` were not looked at
        yet.
        """

        def beyond() -> bool:
            head = self._heads.get(key)
            return head is not None and head > after

        with self._changed:
            self._changed.wait_for(
                lambda: beyond() or not self._polling or self._database.forking,
                timeout=max(0.0, end - time.monotonic()),
            )
            if beyond():
                return True
            if self._polling or self._database.forking:
                return False
            self._polling = True
        try:
            return self._poll(connection, version, beyond, end)
        finally:
            with self._changed:
                self._polling = False
                self._changed.notify_all()
                if self._closed:
                    self._unwatch()

    def _poll(
        self, connection: sqlite3.Connection, version: int, done: Callable[[], bool], end: float
    ) -> bool:
        """As `_sleep_until`, for the one thread that polls."""
        watch = self._watched()
        # A commit may have been under way when the wait began.
        lively_until = time.monotonic() + _LIVELY_SECONDS
        while not done():
            found = _data_version(connection)
            if found != version:
                version = found
                with self._changed:
                    keys = list(self._waited)
                self._look(connection, keys)
                continue
            now = time.monotonic()
            if now >= end or self._closed or self._database.forking:
                return False
            if watch is None or now - self._wrote_at < _LIVELY_SECONDS:
                # Writes are mostly this process's own, and those wake the waiters directly.
                with self._changed:
                    self._changed.wait_for(
                        lambda: done() or self._closed or self._database.forking,
                        timeout=min(_POLL_SECONDS, end - now),
                    )
                continue
            # The file write is noticed before the commit, which includes an fsync: keep looking for a while.
            if watch.wait(min(_pause(now - lively_until), end - now)):
                lively_until = time.monotonic() + _LIVELY_SECONDS
        return True

    def _watched(self) -> Watch | None:
        """The watch on the database's directory; kept, since the kernel takes long to close one."""
        with self._changed:
            if self._watch is None:
                self._watch = watch_directory(Path(self._database.path).absolute().parent)
            return self._watch

    def _unwatch(self) -> None:
        """Close the watch if no thread is waiting on it; the lock is held."""
        if self._watch is not None and not self._polling:
            self._watch.close()
            self._watch = None

    def close(self) -> None:
        """Close the connections."""
        with self._changed:
            self._closed = True
            if self._watch is not None and self._polling:
                self._watch.wake()
            self._unwatch()
        self._database.close()


def _pause(quiet: float) -> float:
    """Seconds until the next look, ``quiet`` seconds after the lively time ended (negative: during it)."""
    if quiet < 0:
        return _LIVELY_PAUSE
    return _LATE_PAUSE if quiet < _LATE_SECONDS else _WATCHED_SECONDS


def _data_version(connection: sqlite3.Connection) -> int:
    """A number that changes whenever another connection, of any process, has committed."""
    version: int = connection.execute("PRAGMA data_version").fetchone()[0]
    return version


_ORACLE_SCHEMA = """
CREATE TABLE IF NOT EXISTS timestamp_oracle (
    timeline TEXT NOT NULL PRIMARY KEY,
    read_ts INTEGER NOT NULL,
    write_ts INTEGER NOT NULL
)
"""


class SqliteOracle:
    """A timestamp oracle in a row of the table ``timestamp_oracle``.

    The statements are those of Materialize's distributed timestamp oracle design, except for ``apply_write``, which
    raises the read timestamp to its argument (the design uses the stored write timestamp, which would miss the write
    just applied).

    Args:
        path: the database file.
        timeline: the row.
        now: the wall clock in milliseconds.
        initial: a lower bound for both timestamps.
    """

    def __init__(
        self, path: str | Path, timeline: str, now: Callable[[], int], *, initial: int = 0
    ) -> None:
        check_ts(initial)
        self._database = Database(path, _ORACLE_SCHEMA, _ORACLE_BUSY_SECONDS)
        self._timeline = timeline
        self._now = now
        _, there = self._database.run(
            "open the timeline",
            "SELECT 1 FROM timestamp_oracle WHERE timeline = ?1 AND read_ts >= ?2",
            timeline,
            initial,
        )
        if there:
            # Nothing to write, so a read-only process can open it too.
            return
        self._database.run(
            "open the timeline",
            "INSERT INTO timestamp_oracle (timeline, read_ts, write_ts) SELECT ?1, ?2, ?2"
            " WHERE NOT EXISTS (SELECT 1 FROM timestamp_oracle WHERE timeline = ?1)",
            timeline,
            initial,
        )
        self.apply_write(initial)

    def write_ts(self) -> int:
        """Allocate a timestamp above all others and not below the clock.

        Raises:
            Determinate: the timeline has no timestamps left.
        """
        _, rows = self._database.run(
            "allocate a write timestamp",
            "UPDATE timestamp_oracle SET write_ts = max(write_ts + 1, ?2)"
            " WHERE timeline = ?1 AND write_ts < ?3 RETURNING write_ts",
            self._timeline,
            self._now(),
            MAX_SEQNO - 1,
        )
        if not rows:
            self._select("write_ts")
            raise Determinate(f"timeline {self._timeline!r} has no timestamps left")
        return int(rows[0][0])

    def peek_write_ts(self) -> int:
        """The most recently allocated timestamp."""
        return self._select("write_ts")

    def read_ts(self) -> int:
        """The read timestamp."""
        return self._select("read_ts")

    def _select(self, column: str) -> int:
        _, rows = self._database.run(
            f"read {column}",
            f"SELECT {column} FROM timestamp_oracle WHERE timeline = ?",
            self._timeline,
        )
        if not rows:
            raise Determinate(
                f"sqlite {self._database.path}: the row of timeline {self._timeline!r} is gone"
            )
        return int(rows[0][0])

    def apply_write(self, ts: int) -> None:
        """Raise both timestamps to at least ``ts``; writes (and fsyncs) nothing where they already are."""
        check_ts(ts)
        self._database.run(
            "apply a write",
            "UPDATE timestamp_oracle SET write_ts = max(write_ts, ?2), read_ts = max(read_ts, ?2)"
            " WHERE timeline = ?1 AND read_ts < ?2",
            self._timeline,
            ts,
        )

    def clock_ms(self) -> int:
        """The machine's clock, read through SQLite."""
        _, rows = self._database.run(
            "read the clock", "SELECT CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
        )
        return int(rows[0][0])

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


@hookimpl
def mzsql_open_consensus(url: SplitResult) -> Consensus | None:
    """``sqlite:relative/path`` or ``sqlite:///absolute/path``."""
    return SqliteConsensus(local_path(url)) if url.scheme == "sqlite" else None


@hookimpl
def mzsql_open_oracle(
    url: SplitResult, timeline: str, now: Callable[[], int]
) -> TimestampOracle | None:
    """``sqlite:relative/path`` or ``sqlite:///absolute/path``."""
    return SqliteOracle(local_path(url), timeline, now) if url.scheme == "sqlite" else None


@hookimpl
def mzsql_serves() -> list[Serves]:
    """Consensus and oracle, in a local database file."""
    form = "sqlite:relative/path or sqlite:///absolute/path"
    return [Serves(kind, ("sqlite",), form) for kind in ("consensus", "oracle")]


@hookimpl
def mzsql_scratch_url(kind: str, directory: str) -> str | None:
    """A database below the given directory."""
    return local_url("sqlite", f"{directory}/{kind}.db") if kind != "blob" else None
