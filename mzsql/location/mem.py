"""Backends in this process's memory, for tests and for measuring everything but IO.

Promise: the full contracts, between threads. ``mem:`` is a new store at each opening; ``mem:name`` is the same store at
each opening in the process. Nothing survives the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar
from urllib.parse import SplitResult

from mzsql.location.errors import Determinate
from mzsql.location.hookspecs import Kind, Serves, hookimpl
from mzsql.location.keys import check_blob_key, check_limit, check_step, check_truncate, check_ts
from mzsql.location.protocols import MAX_SEQNO, Blob, Consensus, TimestampOracle, Versioned
from mzsql.location.urls import local_url, url_options

T = TypeVar("T")


class MemBlob:
    """A Blob store in a dict."""

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def get(self, key: str) -> bytes | None:
        """The value of ``key``, or `None`."""
        with self._lock:
            return self._objects.get(check_blob_key(key))

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Up to ``length`` bytes from ``offset``."""
        value = self.get(key)
        return None if value is None else value[offset : offset + length]

    def set(self, key: str, value: bytes) -> None:
        """Map ``key`` to ``value``."""
        with self._lock:
            self._objects[check_blob_key(key)] = bytes(value)

    def delete(self, key: str) -> int | None:
        """Remove ``key``; its former size, or `None`."""
        with self._lock:
            value = self._objects.pop(check_blob_key(key), None)
        return None if value is None else len(value)

    def list_keys_and_metadata(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Each key that starts with ``prefix``, with its size."""
        with self._lock:
            found = [(k, len(v)) for k, v in self._objects.items() if k.startswith(prefix)]
        return iter(found)

    def close(self) -> None:
        """Nothing to release."""


class MemConsensus:
    """A Consensus store in a dict of lists."""

    def __init__(self) -> None:
        self._logs: dict[str, list[Versioned]] = {}
        self._changed = threading.Condition()

    def head(self, key: str) -> Versioned | None:
        """The newest entry, or `None`."""
        with self._changed:
            log = self._logs.get(key)
            return log[-1] if log else None

    def compare_and_set(self, key: str, expected: int | None, new: Versioned) -> bool:
        """Append ``new`` iff the newest seqno is ``expected``."""
        check_step(key, expected, new.seqno)
        with self._changed:
            log = self._logs.get(key)
            if (log[-1].seqno if log else None) != expected:
                return False
            self._logs.setdefault(key, []).append(Versioned(new.seqno, bytes(new.data)))
            self._changed.notify_all()
            return True

    def scan(self, key: str, from_seqno: int, limit: int) -> list[Versioned]:
        """At most ``limit`` entries from ``from_seqno`` on."""
        check_limit(limit)
        with self._changed:
            log = self._logs.get(key, [])
            start = max(0, from_seqno - log[0].seqno) if log else 0
            return log[start : start + limit]

    def scan_many(self, starts: Mapping[str, int], limit: int) -> dict[str, list[Versioned]]:
        """For each key, at most ``limit`` entries from its seqno on."""
        check_limit(limit)
        return {key: log for key, start in starts.items() if (log := self.scan(key, start, limit))}

    def truncate(self, key: str, seqno: int) -> int:
        """Remove the entries below ``seqno``; how many were removed."""
        with self._changed:
            log = self._logs.get(key, [])
            check_truncate(key, seqno, log[-1].seqno if log else None)
            kept = [entry for entry in log if entry.seqno >= seqno]
            self._logs[key] = kept
            return len(log) - len(kept)

    def list_keys(self) -> Iterator[str]:
        """Every key that has an entry."""
        with self._changed:
            return iter(list(self._logs))

    def wait(self, key: str, after_seqno: int, timeout: float) -> bool:
        """Block until there is an entry beyond ``after_seqno``, or for ``timeout`` seconds; whether there is."""

        def arrived() -> bool:
            log = self._logs.get(key, [])
            return bool(log) and log[-1].seqno > after_seqno

        with self._changed:
            return self._changed.wait_for(arrived, timeout)

    def close(self) -> None:
        """Nothing to release."""


class MemTimestamps:
    """The two timestamps of a timeline, shared by all handles opened on it.

    Args:
        initial: the initial value of both.
    """

    def __init__(self, initial: int = 0) -> None:
        check_ts(initial)
        self.read = initial
        self.write = initial
        self.lock = threading.Lock()


class MemOracle:
    """A timestamp oracle in two integers.

    Args:
        now: this handle's wall clock, in milliseconds since the epoch.
        initial: the initial value of both timestamps.
        timestamps: an existing timeline's timestamps, instead of ``initial``.
    """

    def __init__(
        self,
        now: Callable[[], int],
        *,
        initial: int = 0,
        timestamps: MemTimestamps | None = None,
    ) -> None:
        self._now = now
        self._timestamps = timestamps or MemTimestamps(initial)

    def write_ts(self) -> int:
        """Allocate a timestamp above all others and not below the clock.

        Raises:
            Determinate: the timeline has no timestamps left below 2**63 - 1.
        """
        with self._timestamps.lock:
            ts = max(self._timestamps.write + 1, self._now())
            if ts > MAX_SEQNO - 1:
                raise Determinate("the timeline has no timestamps left")
            self._timestamps.write = ts
            return ts

    def peek_write_ts(self) -> int:
        """The most recently allocated timestamp."""
        with self._timestamps.lock:
            return self._timestamps.write

    def read_ts(self) -> int:
        """The read timestamp."""
        with self._timestamps.lock:
            return self._timestamps.read

    def apply_write(self, ts: int) -> None:
        """Raise both timestamps to at least ``ts``."""
        check_ts(ts)
        with self._timestamps.lock:
            self._timestamps.read = max(self._timestamps.read, ts)
            self._timestamps.write = max(self._timestamps.write, ts)

    def clock_ms(self) -> int:
        """The machine's clock, independent of the handle's."""
        return time.time_ns() // 1_000_000

    def close(self) -> None:
        """Nothing to release."""


_shared: dict[tuple[str, ...], Any] = {}
_shared_lock = threading.Lock()


def _named(kind: str, url: SplitResult, make: Callable[[], T], *more: str) -> T:
    url_options(url, ())  # there are none
    if not url.path:
        return make()
    with _shared_lock:
        found: T = _shared.setdefault((kind, url.path, *more), make())
        return found


@hookimpl
def mzsql_open_blob(url: SplitResult) -> Blob | None:
    """``mem:`` or ``mem:name``."""
    return _named("blob", url, MemBlob) if url.scheme == "mem" else None


@hookimpl
def mzsql_open_consensus(url: SplitResult) -> Consensus | None:
    """``mem:`` or ``mem:name``."""
    return _named("consensus", url, MemConsensus) if url.scheme == "mem" else None


@hookimpl
def mzsql_open_oracle(
    url: SplitResult, timeline: str, now: Callable[[], int]
) -> TimestampOracle | None:
    """``mem:`` or ``mem:name``."""
    if url.scheme != "mem":
        return None
    return MemOracle(now, timestamps=_named("oracle", url, MemTimestamps, timeline))


@hookimpl
def mzsql_serves() -> list[Serves]:
    """All three kinds, in this process's memory."""
    form = "mem: (new at each opening) or mem:name"
    kinds: tuple[Kind, ...] = ("blob", "consensus", "oracle")
    return [Serves(kind, ("mem",), form, one_process=True) for kind in kinds]


@hookimpl
def mzsql_scratch_url(kind: str, directory: str) -> str | None:
    """A separate store for each directory."""
    return local_url("mem", f"{directory}/{kind}")
