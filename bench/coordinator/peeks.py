"""Fast-path peeks: median and rate with 1, 8 and 64 sessions on constants, small reads and index lookups.

    .venv/bin/python bench/coordinator/peeks.py [--seconds 3] [--json found.json] [--no-index]

Targets: a median under 3 ms with one session, at least 500 a second, no durable write for a read. Beside them the same lookup in a DuckDB
table of the same rows in the same process: what an engine in memory takes that promises nothing about other processes.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import duckdb
import msgspec
from sessions import Rate, Text, environment, measured

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.session.session import Session

SESSIONS = (1, 8, 64)
ROWS = 1000
INDEXED_ROWS = 200_000
TARGET_MS = 3.0
TARGET_RATE = 500.0
#: No fast path: an engine computes these, here for comparison.
COMPUTED = frozenset({"small aggregate"})


class Found(msgspec.Struct, frozen=True):
    """What one kind of peek did: a rate for each number of sessions, and the durable writes of all of them."""

    name: str
    rates: tuple[Rate, ...]
    writes: int


def durable_state(coordinator: Coordinator) -> int:
    """A number that each write to the catalog or to the log of writes raises."""
    return coordinator.env.wal.state.upper + coordinator.env.catalog.step


def set_up(coordinator: Coordinator, *, index: bool) -> None:
    """The tables, and the index once lookups are answered from it."""
    session = Session()
    coordinator.execute(session, "CREATE TABLE small (k int, v text)")
    coordinator.execute(
        session, f"INSERT INTO small SELECT g, 'v' || g::text FROM generate_series(1, {ROWS}) g"
    )
    if not index:
        return
    coordinator.execute(session, "CREATE TABLE large (k int, v text, n bigint)")
    coordinator.execute(
        session,
        "INSERT INTO large SELECT g % 20000, 'value ' || g::text, g "
        f"FROM generate_series(1, {INDEXED_ROWS}) g",
    )
    coordinator.execute(
        session, "CREATE VIEW sums AS SELECT k, count(*) n, max(v) v FROM large GROUP BY k"
    )
    coordinator.execute(session, "CREATE INDEX by_key ON sums (k)")
    used = coordinator._peeker.indexes
    end = time.monotonic() + 300
    while time.monotonic() < end:
        read = [0]
        rows = used.rows

        def counted(
            *args: object, read: list[int] = read, rows: Callable[..., object] = rows
        ) -> object:
            found = rows(*args)
            read[0] += found is not None
            return found

        used.rows = counted  # type: ignore[assignment, method-assign]
        try:
            coordinator.execute(session, "SELECT * FROM sums WHERE k = 1")
        finally:
            used.rows = rows  # type: ignore[method-assign]
        if read[0]:
            return
        time.sleep(1)
    raise SystemExit("the index was not filled within 300 s")


def kinds(*, index: bool) -> dict[str, Text]:
    """What is asked, by name; literals change from statement to statement, so that nothing is planned before but its like."""
    found: dict[str, Text] = {
        "constant": lambda session, number: f"SELECT {number}, 'session {session}'",
        "constant expression": lambda session, number: f"SELECT {number} + {session}",
        "small read": lambda session, number: (
            f"SELECT * FROM small WHERE k = {(session * 37 + number) % ROWS}"
        ),
        "small read, again": lambda *_: "SELECT * FROM small WHERE k = 77",
        "small aggregate": lambda *_: "SELECT count(*), max(v) FROM small",
    }
    if index:
        found["index lookup"] = lambda session, number: (
            f"SELECT * FROM sums WHERE k = {(session * 37 + number) % 20000}"
        )
    return found


def run(
    directory: Path, *, seconds: float = 3.0, index: bool = True, sessions: Sequence[int] = SESSIONS
) -> list[Found]:
    """Measure every kind of peek in a fresh environment below ``directory``."""
    results: list[Found] = []
    with environment(directory / "env", with_spark=index) as coordinator:
        set_up(coordinator, index=index)
        for name, text in kinds(index=index).items():
            coordinator.execute(Session(), text(0, 0))
            before = durable_state(coordinator)
            rates = tuple(measured(coordinator, text, n, seconds) for n in sessions)
            results.append(Found(name, rates, durable_state(coordinator) - before))
    return results


def baseline(seconds: float) -> float:
    """The median of a lookup in a DuckDB table of the same rows, in milliseconds."""
    connection = duckdb.connect()
    connection.execute(
        f"CREATE TABLE small AS SELECT g::int AS k, 'v' || g AS v FROM range(1, {ROWS + 1}) r (g)"
    )
    took = []
    end = time.perf_counter() + seconds
    for number in itertools.count():
        began = time.perf_counter()
        if began > end:
            break
        connection.sql(f"SELECT * FROM small WHERE k = {number % ROWS}").to_arrow_table()
        took.append(time.perf_counter() - began)
    connection.close()
    return sorted(took)[len(took) // 2] * 1000


def report(found: Sequence[Found], duckdb_ms: float) -> str:
    """The figures as a table for a person."""
    lines = [f"{'peek':<20}{'sessions':>9}{'per s':>9}{'p50 ms':>9}{'p95 ms':>9}{'p99 ms':>9}"]
    for one in found:
        for rate in one.rates:
            lines.append(
                f"{one.name:<20}{rate.sessions:>9}{rate.per_second:>9.0f}{rate.p50:>9.2f}{rate.p95:>9.2f}{rate.p99:>9.2f}"
            )
    lines.append(f"a lookup in a DuckDB table: {duckdb_ms:.2f} ms")
    for one in found:
        first = one.rates[0]
        best = max(rate.per_second for rate in one.rates)
        fast = one.name in COMPUTED or (first.p50 < TARGET_MS and best >= TARGET_RATE)
        met = fast and one.writes == 0
        lines.append(
            f"{one.name}: median {first.p50:.2f} ms ({first.p50 / duckdb_ms:.1f} times DuckDB's lookup), "
            f"up to {best:.0f} a second, {one.writes} durable writes: {'met' if met else 'MISSED'}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path)
    parser.add_argument(
        "--no-index", action="store_true", help="no index lookups, which need Spark"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        found = run(Path(directory), seconds=options.seconds, index=not options.no_index)
    print(report(found, baseline(options.seconds)))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(found)))


if __name__ == "__main__":
    main()
