"""Inserts and updates: many sessions against one, in turns, on SQLite as it is and with milliseconds added to each operation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import delayed
from figures import Case, median, rounds
from sessions import Rate, Text, measured

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session

MANY = 64
#: Milliseconds added, and how many times as fast 64 sessions are to be as one.
TARGETS = ((0.0, 2.0), (5.0, 15.0))
INSERTS_PER_APPEND = 20.0


@contextmanager
def _coordinator(directory: Path, milliseconds: float) -> Iterator[Coordinator]:
    directory.mkdir(parents=True)
    env = Environment.open(
        locate(
            blob=f"file:{directory}/blob",
            consensus=delayed.url(f"{directory}/consensus.db", milliseconds),
            oracle=delayed.url(f"{directory}/oracle.db", milliseconds),
        )
    )
    try:
        coordinator = Coordinator(env, spark=None)
        try:
            yield coordinator
        finally:
            coordinator.close()
    finally:
        env.close()


def inserts(directory: Path, *, quick: bool) -> Case:
    """Sessions that insert single rows, each a transaction of its own."""
    case = Case("a", f"INSERT of one row: {MANY} sessions against one, in turns")
    for milliseconds, wanted in TARGETS:
        with _coordinator(directory / f"inserts{milliseconds:g}", milliseconds) as coordinator:
            coordinator.execute(Session(), "CREATE TABLE t (session int, n int, v text)")
            _inserts(case, coordinator, milliseconds, wanted, quick=quick)
    case.notes.append(
        "The same process, machine and files; the sessions are threads that do nothing else."
    )
    return case


def _inserts(
    case: Case, coordinator: Coordinator, milliseconds: float, wanted: float, *, quick: bool
) -> None:
    commits = coordinator.commits
    found: dict[int, list[Rate]] = {1: [], MANY: []}
    per_append: dict[int, list[float]] = {1: [], MANY: []}

    def contender(sessions: int) -> float:
        before = commits.commits, commits.appends
        rate = measured(coordinator, _insert, sessions, 1.0 if quick else 4.0)
        found[sessions].append(rate)
        per_append[sessions].append(
            (commits.commits - before[0]) / max(1, commits.appends - before[1])
        )
        return rate.per_second

    turns = {str(n): lambda n=n: contender(n) for n in found}
    rates = rounds(2 if quick else 5, turns, warm=1)
    one = median(rates["1"])
    for sessions, runs in found.items():
        counted = runs[1:]
        case.row(
            added_ms=milliseconds,
            sessions=sessions,
            inserts_per_second=median([r.per_second for r in counted]),
            p50_ms=median([r.p50 for r in counted]),
            p99_ms=median([r.p99 for r in counted]),
            inserts_per_append=median(per_append[sessions][1:]),
            over_one_session=median(rates[str(sessions)]) / one,
        )
    where = f"with {milliseconds:g} ms added" if milliseconds else "on SQLite"
    case.target(f"{MANY} sessions over one {where}", median(rates[str(MANY)]) / one, least=wanted)
    case.target(
        f"inserts per append {where}", median(per_append[MANY][1:]), least=INSERTS_PER_APPEND
    )


def _insert(session: int, number: int) -> str:
    return f"INSERT INTO t VALUES ({session}, {number}, 'value {number}')"


def updates(directory: Path, *, quick: bool) -> Case:
    """Sessions that update one row: all the same, or each one of a table of its own."""
    case = Case("b", "UPDATE of one row: of one table by all, and by each of a table of its own")
    sessions: Sequence[int] = (1, 8) if quick else (1, 8, MANY)
    for milliseconds, _ in TARGETS:
        with _coordinator(directory / f"updates{milliseconds:g}", milliseconds) as coordinator:
            for number in range(max(sessions)):
                coordinator.execute(
                    Session(), f"CREATE TABLE t{number} (n int); INSERT INTO t{number} VALUES (0)"
                )
            for what, text in _UPDATES.items():
                for many in sessions:
                    commits = coordinator.commits
                    before = commits.commits, commits.appends
                    rate = measured(coordinator, text, many, 3.0 if quick else 8.0)
                    appends = max(1, commits.appends - before[1])
                    case.row(
                        added_ms=milliseconds,
                        what=what,
                        sessions=many,
                        updates_per_second=rate.per_second,
                        p50_ms=rate.p50,
                        p99_ms=rate.p99,
                        updates_per_append=(commits.commits - before[0]) / appends,
                    )
    case.notes.append(
        "Updates of one table wait for each other, from their read to their answer, and pay the whole way each."
    )
    return case


_UPDATES: dict[str, Text] = {
    "one table": lambda _session, _number: "UPDATE t0 SET n = n + 1",
    "own tables": lambda session, _number: f"UPDATE t{session} SET n = n + 1",
}
