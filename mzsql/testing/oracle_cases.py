"""What every timestamp oracle must do, one plain function for each thing.

Sources: the `TimestampOracle` protocol's text and the cases of the oracle it follows: fresh, a clock that stands still, peeking,
applying below, between and above both timestamps, the end of time. What several threads and processes do at once
is in `mzsql.testing.concurrent`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from mzsql.location import MAX_SEQNO, Clocked, LocationError, TimestampOracle, UsageError
from mzsql.oracle import BoundedClock, SkewGuard, wall_clock_ms
from mzsql.testing.contract import Case, case, run_together
from mzsql.testing.expect import expect, expect_equal, expect_raises
from mzsql.testing.sites import OracleSite

CASES: list[Case[OracleSite]] = []

MAX_TS = MAX_SEQNO - 1
"""The greatest timestamp; the one after it must still be a number."""
_HOUR_MS = 3_600_000


def both(oracle: TimestampOracle) -> tuple[int, int]:
    """The read and the write timestamp."""
    return oracle.read_ts(), oracle.peek_write_ts()


@case(CASES)
def fresh(site: OracleSite) -> None:
    """A new timeline reads at 0 and allocates by the clock."""
    oracle = site.open(lambda: 100)
    expect_equal(both(oracle), (0, 0), "read and write timestamp of a new timeline")
    expect_equal(oracle.write_ts(), 100, "the first allocation")
    expect_equal(both(oracle), (0, 100), "read and write timestamp after it")


@case(CASES)
def frozen_clock(site: OracleSite) -> None:
    """Allocations strictly increase even when the clock stands still or runs back, and follow it when it runs ahead."""
    clock = [50]
    oracle = site.open(lambda: clock[0])
    found = [oracle.write_ts() for _ in range(3)]
    expect_equal(found, [50, 51, 52], "allocations while the clock stands still")
    clock[0] = 10
    expect_equal(oracle.write_ts(), 53, "an allocation after the clock ran back")
    clock[0] = 80
    expect_equal(oracle.write_ts(), 80, "an allocation after the clock ran ahead")


@case(CASES)
def peek_allocates_nothing(site: OracleSite) -> None:
    """Peeking and reading advance nothing."""
    oracle = site.open(lambda: 5)
    oracle.write_ts()
    found = [oracle.peek_write_ts() for _ in range(3)] + [oracle.read_ts() for _ in range(3)]
    expect_equal(found, [5, 5, 5, 0, 0, 0], "peeks and reads")
    expect_equal(oracle.write_ts(), 6, "the next allocation")


@case(CASES)
def apply_below_between_above(site: OracleSite) -> None:
    """Applying below read changes nothing, between raises read only, above raises both."""
    oracle = site.open(lambda: 0)
    oracle.apply_write(10)
    expect_equal(both(oracle), (10, 10), "after applying above both")
    oracle.apply_write(4)
    expect_equal(both(oracle), (10, 10), "after applying below both")
    oracle.apply_write(10)
    expect_equal(both(oracle), (10, 10), "after applying again")
    found = [oracle.write_ts() for _ in range(5)]
    expect_equal(found, [11, 12, 13, 14, 15], "allocations after applying")
    oracle.apply_write(12)
    expect_equal(both(oracle), (12, 15), "after applying between")
    oracle.apply_write(15)
    expect_equal(both(oracle), (15, 15), "after applying the write timestamp")
    oracle.apply_write(20)
    expect_equal(both(oracle), (20, 20), "after applying above both")
    expect_equal(oracle.write_ts(), 21, "the next allocation")


@case(CASES)
def end_of_time(site: OracleSite) -> None:
    """The greatest timestamps can be allocated and applied; after them a typed error, and nothing changes."""
    oracle = site.open(lambda: MAX_TS - 1)
    expect_equal(oracle.write_ts(), MAX_TS - 1, "an allocation close to the end")
    expect_equal(oracle.read_ts(), 0, "read after it")
    expect_equal(oracle.write_ts(), MAX_TS, "the last allocation")
    expect_raises(LocationError, "an allocation after the last one", oracle.write_ts)
    expect_equal(both(oracle), (0, MAX_TS), "after an allocation that was refused")
    oracle.apply_write(MAX_TS)
    expect_equal(both(oracle), (MAX_TS, MAX_TS), "after applying the last one")


@case(CASES)
def refused_timestamps(site: OracleSite) -> None:
    """A timestamp that is negative or past the end is a usage error and changes nothing."""
    oracle = site.open(lambda: 7)
    oracle.apply_write(oracle.write_ts())
    for ts in (-1, MAX_TS + 1, MAX_SEQNO + 1, 2**64):
        expect_raises(UsageError, f"apply_write({ts})", oracle.apply_write, ts)
        expect_equal(both(oracle), (7, 7), f"after apply_write({ts})")


@case(CASES)
def timelines_are_apart(site: OracleSite) -> None:
    """Timelines do not touch each other, whatever their names."""
    names = ("one", "two", "One", "quote'd", "ünï/日本", "per%cent_", "t" * 100)
    oracles = [site.open(lambda n=n: 10 * n, name) for n, name in enumerate(names, 1)]  # type: ignore[misc]
    for oracle in oracles[::2]:
        oracle.apply_write(oracle.write_ts())
    for n, oracle in enumerate(oracles, 1):
        wanted = (10 * n, 10 * n) if n % 2 else (0, 0)
        expect_equal(both(oracle), wanted, f"timeline {names[n - 1]!r}")


@case(CASES)
def two_handles(site: OracleSite) -> None:
    """What one handle allocated and applied, another sees at once, whatever its clock says."""
    one, two = site.open(lambda: 1000), site.open(lambda: 1)
    expect_equal(one.write_ts(), 1000, "an allocation")
    expect_equal(both(two), (0, 1000), "both timestamps through the other handle")
    one.apply_write(1000)
    expect_equal(two.read_ts(), 1000, "read through the other handle after applying")
    expect_equal(two.write_ts(), 1001, "an allocation through the other handle")
    expect_equal(one.peek_write_ts(), 1001, "peek after the other handle's allocation")
    two.apply_write(1500)
    expect_equal(both(one), (1500, 1500), "both timestamps after the other handle applied")
    expect_equal(one.write_ts(), 1501, "an allocation after the other handle applied")


@case(CASES)
def clocks_of_two_handles(site: OracleSite) -> None:
    """Each handle allocates by the clock it was opened with, not by another handle's."""
    slow, fast = site.open(lambda: 10), site.open(lambda: 500)
    expect_equal(slow.write_ts(), 10, "an allocation by the slow clock")
    expect_equal(fast.write_ts(), 500, "an allocation by the fast clock")
    expect_equal(slow.write_ts(), 501, "an allocation by the slow clock after that")


@case(CASES)
def reopened(site: OracleSite) -> None:
    """A handle opened later goes on where others were."""
    first = site.open(lambda: 1000)
    first.apply_write(first.write_ts())
    first.write_ts()
    first.close()
    second = site.open(lambda: 1)
    expect_equal(both(second), (1000, 1001), "both timestamps through a later handle")
    expect_equal(second.write_ts(), 1002, "an allocation through a later handle")


@case(CASES)
def closing(site: OracleSite) -> None:
    """Closing twice is no error; a closed handle still works or refuses with a typed error; other handles do not notice."""
    oracle, other = site.open(lambda: 5), site.open(lambda: 5)
    oracle.write_ts()
    oracle.close()
    oracle.close()
    acts: tuple[Callable[[], object], ...] = (
        oracle.read_ts,
        oracle.peek_write_ts,
        lambda: oracle.apply_write(0),
    )
    for act in acts:
        try:
            act()
        except (LocationError, UsageError):
            continue
    expect_equal(both(other), (0, 5), "both timestamps through a handle that is open")


@case(CASES)
def fast_clock(site: OracleSite) -> None:
    """Where the backend has a clock, a machine that is an hour fast allocates nothing, and one that is right goes on."""

    def guarded(wrong: int) -> tuple[TimestampOracle, SkewGuard]:
        clock = BoundedClock(lambda: wall_clock_ms() + wrong)
        oracle = site.open(clock)
        if isinstance(oracle, Clocked):
            clock.consult(oracle.clock_ms)
        return oracle, SkewGuard(oracle, clock)

    bare, right = guarded(0)
    if not isinstance(bare, Clocked):
        return
    before = bare.clock_ms()
    expect(
        abs(before - wall_clock_ms()) < _HOUR_MS / 2,
        f"the backend's clock says {before} ms since the epoch, this machine's {wall_clock_ms()}",
    )
    expect(before <= bare.clock_ms() + 1000, "the backend's clock goes back")
    right.apply_write(right.write_ts())
    newest = right.peek_write_ts()
    _, fast = guarded(_HOUR_MS)
    expect_raises(UsageError, "an allocation by a clock that is an hour fast", fast.write_ts)
    expect_equal(right.peek_write_ts(), newest, "the latest allocated after it was refused")
    ts = right.write_ts()
    expect(newest < ts < before + _HOUR_MS / 2, f"{ts} was allocated after {newest}")
    _, slow = guarded(-_HOUR_MS)
    expect_equal(slow.write_ts(), ts + 1, "an allocation by a clock that is an hour slow")


@case(CASES)
def promises_between_threads(site: OracleSite) -> None:
    """Between threads: allocations are distinct, and a read is never below a write applied before it began."""
    handles = [site.open(lambda: 0) for _ in range(2)]
    rounds = site.sized(25, 250)
    allocated: list[int] = []
    lock = threading.Lock()
    applied = [0]

    def write(oracle: TimestampOracle) -> None:
        for _ in range(rounds):
            ts = oracle.write_ts()
            oracle.apply_write(ts)
            with lock:
                allocated.append(ts)
                applied[0] = max(applied[0], ts)

    def read(oracle: TimestampOracle) -> None:
        last = 0
        for _ in range(2 * rounds):
            with lock:
                floor = max(last, applied[0])
            last = oracle.read_ts()
            expect(last >= floor, f"read {last} after {floor} was applied")
            ts = oracle.write_ts()
            expect(ts > last, f"allocated {ts}, which is not above the read timestamp {last}")
            with lock:
                allocated.append(ts)

    works = [functools.partial(work, each) for each in handles for work in (write, read)]
    run_together(works)
    expect_equal(len(set(allocated)), len(allocated), "number of distinct allocations")
