"""The figure of the distributed timestamp oracle's design, appendix A: peeks, inserts and updates against the number of sessions.

    .venv/bin/python bench/coordinator/appendix.py --json found.json            # measures: three minutes
    .venv/bin/python bench/coordinator/appendix.py --draw found.json docs/oracle-sessions.svg

Each statement runs in sessions of one process, once with the distributed oracle (batched reads, no confirmation of leadership) and once
with timestamps served from memory, each result of which waits until leadership is confirmed. Both on the same files and SQLite, in turns.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
from picture import drawn
from sessions import Line, Rate, Text, environment, measured

from mzsql.adapter.session.session import Session

SESSIONS = (1, 2, 4, 8, 16, 32, 64)
ORACLES = ("distributed", "in-memory")
ROWS = 64
STATEMENTS: dict[str, Text] = {
    "peek": lambda session, number: f"SELECT * FROM t WHERE k = {(session + number) % ROWS}",
    "insert": lambda session, number: f"INSERT INTO written VALUES ({session}, {number})",
    "update": lambda session, number: f"UPDATE t SET v = {number} WHERE k = {session % ROWS}",
}


def run(directory: Path, *, seconds: float = 3.0, sessions: Sequence[int] = SESSIONS) -> list[Line]:
    """Measure every line in a fresh environment below ``directory``; the oracles take turns at each point."""
    found: dict[tuple[str, str], list[Rate]] = {
        (statement, oracle): [] for statement in STATEMENTS for oracle in ORACLES
    }
    with environment(directory / "env", with_spark=False) as coordinator:
        setup = Session()
        coordinator.execute(setup, "CREATE TABLE t (k int, v int)")
        coordinator.execute(setup, "CREATE TABLE written (a int, b int)")
        coordinator.execute(
            setup, f"INSERT INTO t SELECT g, 0 FROM generate_series(0, {ROWS - 1}) g"
        )
        for place, n in enumerate(sessions):
            for statement, text in STATEMENTS.items():
                for oracle in ORACLES if place % 2 else reversed(ORACLES):
                    coordinator.execute(setup, f"ALTER SYSTEM SET timestamp_oracle = '{oracle}'")
                    rate = measured(coordinator, text, n, seconds)
                    found[statement, oracle].append(rate)
        coordinator.execute(setup, "ALTER SYSTEM RESET timestamp_oracle")
    return [Line(statement, oracle, tuple(rates)) for (statement, oracle), rates in found.items()]


def report(lines: Sequence[Line]) -> str:
    """The figures as a table for a person."""
    text = [f"{'statement':<10}{'oracle':<13}{'sessions':>9}{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}"]
    text += [
        f"{line.statement:<10}{line.oracle:<13}{r.sessions:>9}{r.per_second:>9.0f}{r.p50:>9.2f}{r.p99:>9.2f}"
        for line in lines
        for r in line.rates
    ]
    return "\n".join(text)


def main() -> None:
    """Measure or draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--json", type=Path, help="write what was measured to this file")
    parser.add_argument("--draw", type=Path, nargs=2, metavar=("JSON", "SVG"))
    options = parser.parse_args()
    if options.draw is not None:
        found, picture = options.draw
        picture.write_text(drawn(msgspec.json.decode(found.read_bytes(), type=list[Line])))
        return
    with tempfile.TemporaryDirectory() as directory:
        lines = run(Path(directory), seconds=options.seconds)
    print(report(lines))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.format(msgspec.json.encode(lines)))


if __name__ == "__main__":
    main()
