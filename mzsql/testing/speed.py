"""The speed sheet: how long each operation of a backend takes, beside the embedded backend measured in the same run.

Promise: data, no verdict; figures are of this machine, this network and this moment, which is why the embedded backend stands beside.
Operations of the two are measured in turn, in rounds, so that what else the machine does meets both. Latency is of one call, as its
caller sees it, with 1 and with 8 threads that share a handle. Nothing but keys and timelines under ``mzsql-kit-<uuid>/`` is touched.
"""

from __future__ import annotations

import functools
import itertools
import math
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from rich.table import Table

from mzsql.location import (
    ConsensusWait,
    LocationError,
    RangeReadable,
    Registry,
    Versioned,
    default_registry,
    local_url,
    shown_url,
)
from mzsql.testing.contract import Level, Site, run_together
from mzsql.testing.kit import served_kinds, site_of
from mzsql.testing.sites import BlobSite, ConsensusSite, OracleSite
from mzsql.testing.workloads import Kind

THREADS = (1, 8)
SMALL = 1_024
LARGE = 8 << 20
LARGE_ENTRY = 1 << 20
"""What counts as large in a log: persist keeps more than that in Blob."""
_ROUNDS = 4
_BASELINE: dict[Kind, Literal["file", "sqlite"]] = {
    "blob": "file",
    "consensus": "sqlite",
    "oracle": "sqlite",
}

Call = Callable[[], object]


class Latency(msgspec.Struct, frozen=True):
    """Percentiles of one operation's latency, in milliseconds.

    Args:
        count: how many calls were measured; with few of them the high percentiles are the slowest call, with none they are 0.
        failed: how many calls besides ended in an error, as a busy backend may refuse some; they are in no percentile.
    """

    count: int
    failed: int
    p50: float
    p95: float
    p99: float


class SpeedRow(msgspec.Struct, frozen=True):
    """One operation.

    Args:
        kind: of backend.
        operation: its method's name, and of what.
        size: of the value, in bytes; 0 where there is none.
        threads: how many called at once, on one handle.
        measured: of the backend.
        embedded: of the embedded backend; `None` where it has no such operation.
    """

    kind: Kind
    operation: str
    size: int
    threads: int
    measured: Latency
    embedded: Latency | None


class SpeedSheet(msgspec.Struct, frozen=True):
    """All of a run.

    Args:
        url: of the backend, without secrets.
        rows: by kind, operation, size and threads.
    """

    url: str
    rows: tuple[SpeedRow, ...]

    def table(self) -> Table:
        """For a terminal."""
        table = Table(title=f"{self.url}, milliseconds a call (embedded: {_embedded_names(self)})")
        for name in ("operation", "size", "threads", "calls", "failed"):
            table.add_column(name, justify="left" if name == "operation" else "right")
        for name in ("p50", "p95", "p99", "embedded p50", "p95", "p99"):
            table.add_column(name, justify="right")
        for row in self.rows:
            name = f"{row.kind} {row.operation}"
            counts = (str(row.threads), str(row.measured.count), str(row.measured.failed))
            figures = (*_figures(row.measured), *_figures(row.embedded))
            table.add_row(name, _size(row.size), *counts, *figures)
        return table


def _figures(latency: Latency | None) -> tuple[str, str, str]:
    if latency is None or not latency.count:
        return ("-", "-", "-")
    return (f"{latency.p50:.2f}", f"{latency.p95:.2f}", f"{latency.p99:.2f}")


def _embedded_names(sheet: SpeedSheet) -> str:
    kinds = dict.fromkeys(row.kind for row in sheet.rows)
    return ", ".join(dict.fromkeys(f"{_BASELINE[kind]}:" for kind in kinds))


def _size(size: int) -> str:
    if not size:
        return ""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


class _Measured(msgspec.Struct, frozen=True):
    """An operation to measure: ``prepare`` makes as many calls as it is asked for, each to be made once."""

    name: str
    size: int
    calls: int
    prepare: Callable[[int], Sequence[Call]]


def measure_speed(
    url: str,
    *,
    kinds: Collection[Kind] | None = None,
    level: Level = "quick",
    registry: Registry | None = None,
) -> SpeedSheet:
    """Measure everything the scheme of ``url`` serves.

    Args:
        url: of a store that is there and may be in use.
        kinds: those to measure; all that are served, without it.
        level: ``quick`` makes some dozens of calls of each operation, ``full`` some hundreds.
        registry: of the plugins, this interpreter's by default.

    Raises:
        UsageError, UnknownScheme, LocationError: as `run_kit`.
    """
    registry = registry or default_registry()
    rows: list[SpeedRow] = []
    with tempfile.TemporaryDirectory(prefix="mzsql-kit-") as directory:
        for kind in served_kinds(registry, url, kinds):
            path = Path(directory) / f"embedded-{kind}"
            sites = []
            for each in (url, local_url(_BASELINE[kind], str(path))):
                sites.append(site_of(kind, registry, each, directory=Path(directory), level=level))
            try:
                rows += _compared(kind, *sites)
            finally:
                for site in sites:
                    site.clean_up()
                    site.close()
    return SpeedSheet(shown_url(url), tuple(rows))


def _compared(kind: Kind, site: Site, embedded: Site) -> list[SpeedRow]:
    rows = []
    others = {(one.name, one.size): one for one in _operations(embedded)}
    for one in _operations(site):
        other = others.get((one.name, one.size))
        for threads in THREADS:
            each = max(1, one.calls * site.sized(1, 10) // _ROUNDS)
            mine, theirs = _Times(), _Times()
            for _ in range(_ROUNDS):
                mine.add(one, each, threads)
                if other is not None:
                    theirs.add(other, each, threads)
            beside = None if other is None else theirs.latency()
            rows.append(SpeedRow(kind, one.name, one.size, threads, mine.latency(), beside))
    return rows


class _Times:
    """The seconds that calls took."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._failed = 0

    def add(self, measured: _Measured, count: int, threads: int) -> None:
        """Make ``count`` calls, or one by each thread if that is more."""
        calls = iter(measured.prepare(max(count, threads)))
        shares = [list(itertools.islice(calls, max(1, count // threads))) for _ in range(threads)]
        taken: list[list[float | None]] = [[] for _ in shares]

        def work(share: list[Call], into: list[float | None]) -> None:
            for call in share:
                begun = time.perf_counter()
                try:
                    call()
                except LocationError:
                    into.append(None)
                else:
                    into.append(time.perf_counter() - begun)

        works = [functools.partial(work, *each) for each in zip(shares, taken, strict=True)]
        run_together(works, eagerly=False)
        found = [seconds for each in taken for seconds in each]
        self._seconds += [seconds for seconds in found if seconds is not None]
        self._failed += found.count(None)

    def latency(self) -> Latency:
        """The percentiles."""
        ordered = sorted(self._seconds)

        def percentile(share: float) -> float:
            """The least value that at least so large a share does not exceed."""
            if not ordered:
                return 0.0
            return 1000 * ordered[max(0, math.ceil(share * len(ordered)) - 1)]

        figures = (percentile(0.5), percentile(0.95), percentile(0.99))
        return Latency(len(ordered), self._failed, *figures)


def _operations(site: Site) -> list[_Measured]:
    if isinstance(site, BlobSite):
        return _blob_operations(site)
    if isinstance(site, ConsensusSite):
        return _consensus_operations(site)
    if isinstance(site, OracleSite):
        return _oracle_operations(site)
    raise AssertionError(f"no operations of {type(site).__name__} are measured")


def _blob_operations(site: BlobSite) -> list[_Measured]:
    blob = site.open()
    found = []
    for size, calls in ((SMALL, 40), (LARGE, 8)):
        value = bytes(size)
        numbers = itertools.count()
        kept = f"kept/{size}"
        blob.set(kept, value)

        def setting(count: int, size: int = size, value: bytes = value) -> list[Call]:
            # Keys come round again, so that a large value does not fill the store.
            return [
                functools.partial(blob.set, f"set/{size}/{n % 16}", value) for n in range(count)
            ]

        def getting(count: int, kept: str = kept) -> list[Call]:
            return [functools.partial(blob.get, kept)] * count

        def deleting(
            count: int, size: int = size, numbers: itertools.count[int] = numbers
        ) -> list[Call]:
            keys = [f"deleted/{size}/{next(numbers)}" for _ in range(count)]
            for key in keys:
                blob.set(key, b"value")
            return [functools.partial(blob.delete, key) for key in keys]

        found.append(_Measured("set", size, calls, setting))
        found.append(_Measured("get", size, calls, getting))
        if size == SMALL:
            found.append(_Measured("delete", 0, calls, deleting))
    found.append(_Measured("list of 100", 0, 20, _listing(site)))
    ranged = blob
    if isinstance(ranged, RangeReadable):
        piece: Call = functools.partial(ranged.get_range, f"kept/{LARGE}", LARGE // 2, 64 << 10)
        found.append(_Measured("get_range", 64 << 10, 20, lambda count: [piece] * count))
    return found


def _listing(site: BlobSite) -> Callable[[int], list[Call]]:
    blob = site.open()
    for number in range(100):
        blob.set(f"listed/{number}", b"value")

    def call() -> object:
        return list(blob.list_keys_and_metadata("listed/"))

    return lambda count: [call] * count


def _consensus_operations(site: ConsensusSite) -> list[_Measured]:
    consensus = site.open()
    logs = itertools.count()
    found = []

    def new(key: str, data: bytes) -> str:
        consensus.compare_and_set(key, None, Versioned(0, data))
        return key

    for size, calls in ((SMALL, 40), (LARGE_ENTRY, 8)):
        data = bytes(size)

        def appending(count: int, data: bytes = data) -> list[Call]:
            keys = [f"appended/{next(logs)}" for _ in range(count)]
            first = Versioned(0, data)
            return [functools.partial(consensus.compare_and_set, key, None, first) for key in keys]

        head = functools.partial(consensus.head, new(f"kept/{size}", data))
        found.append(_Measured("compare_and_set", size, calls, appending))
        found.append(_repeated("head", size, calls, head))
    key = new("log", bytes(SMALL))
    for seqno in range(1, 100):
        consensus.compare_and_set(key, seqno - 1, Versioned(seqno, bytes(SMALL)))
    found.append(_repeated("scan of 100", SMALL, 20, lambda: consensus.scan(key, 0, 100)))

    def truncating(count: int) -> list[Call]:
        keys = [new(f"truncated/{next(logs)}", b"") for _ in range(count)]
        for each in keys:
            consensus.compare_and_set(each, 0, Versioned(1, b""))
        return [functools.partial(consensus.truncate, each, 1) for each in keys]

    found.append(_Measured("truncate", 0, 20, truncating))
    waiting = consensus
    if isinstance(waiting, ConsensusWait):
        found.append(_repeated("wait, there", 0, 20, lambda: waiting.wait(key, 0, 1.0)))
    return found


def _repeated(name: str, size: int, calls: int, call: Callable[[], Any]) -> _Measured:
    return _Measured(name, size, calls, lambda count: [call] * count)


def _oracle_operations(site: OracleSite) -> list[_Measured]:
    oracle = site.open(lambda: 0)
    stamps = itertools.count(1)

    def applying(count: int) -> list[Call]:
        return [functools.partial(oracle.apply_write, 1000 * next(stamps)) for _ in range(count)]

    return [
        _repeated("write_ts", 0, 40, oracle.write_ts),
        _repeated("read_ts", 0, 40, oracle.read_ts),
        _repeated("peek_write_ts", 0, 40, oracle.peek_write_ts),
        _Measured("apply_write", 0, 40, applying),
    ]
