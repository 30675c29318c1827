"""Case j: orders that keep coming, with ten of TPC-H's queries as views.

Transactions of one order with its lines are due at even times, so many a second, whether the one before is done or not; sessions take the
next that is due. Meanwhile one more looks every tenth of a second how far each view is: its *lag* is the time by the clock that
timestamps are made of, less the view's frontier, as something newer is always on its way. What could not be committed when it was due
shows in the rate.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from itertools import count

from figures import Case, median, percentile, scratch
from meter import Meter
from options import Options
from ticks import tick
from tpch import Loaded, loaded

import mzsql

#: Queries that read orders or lines, and differ in what they are made of.
VIEWS = ("q1", "q3", "q4", "q5", "q6", "q10", "q12", "q14", "q18", "q19")
#: Transactions a second; the 99th percentile of a view's lag, in seconds; the rate that counts as kept.
PER_SECOND, LAG_S, KEPT = 200, 1.0, 0.99
SESSIONS = 16
_LOOK_SECONDS = 0.1
#: Of the time, at the beginning.
_WARM = 0.1


def sustained(options: Options, meter: Meter) -> Case:
    """At each scale."""
    case = Case("j", f"{PER_SECOND} transactions a second of one order each, {len(VIEWS)} views")
    for scale in options.scales:
        with scratch(options.directory) as folder, loaded(folder, scale) as at:
            at.hydrate(VIEWS)
            mark = meter.mark()
            run = _Run(at, options.seconds)
            run.go()
            cost = meter.since(mark)
            at.judge.run(statement for number in range(run.done) for statement in tick(number))
            at.check(VIEWS)
        rate = len(run.took) / run.measured
        worst = max(VIEWS, key=lambda view: percentile(run.lags[view], 99))
        case.row(
            scale=f"{scale:g}",
            seconds=run.measured,
            transactions_a_second=rate,
            transaction_p50_ms=median(run.took) * 1000,
            transaction_p99_ms=percentile(run.took, 99) * 1000,
            lag_p50_ms=median([lag for lags in run.lags.values() for lag in lags]) * 1000,
            lag_p99_of_the_worst_ms=percentile(run.lags[worst], 99) * 1000,
            worst=worst,
            cpu_ms_a_transaction=cost.cpu / run.done * 1000,
            Consensus_writes_a_transaction=(cost.writes + cost.writes_behind) / run.done,
        )
        case.target(
            f"lag p99 of the worst view at SF {scale:g}, s",
            percentile(run.lags[worst], 99),
            most=LAG_S,
        )
        case.target(f"transactions a second at SF {scale:g}", rate, least=PER_SECOND * KEPT)
    return case


class _Run:
    """One run: `took` and `lags` are of what came after warming up, in seconds."""

    def __init__(self, at: Loaded, seconds: float) -> None:
        self._at = at
        self._seconds = seconds
        self._lock = threading.Lock()
        self._numbers = count()
        self._failures: list[BaseException] = []
        self._stop = threading.Event()
        self._began = 0.0
        self.measured = seconds * (1 - _WARM)
        self.done = 0
        self.took: list[float] = []
        self.lags: dict[str, list[float]] = {view: [] for view in VIEWS}

    def go(self) -> None:
        """Until the time is over; what failed is raised."""
        self._began = time.perf_counter()
        threads = [
            threading.Thread(target=self._guarded, args=(work,), name=f"bench-{number}")
            for number, work in enumerate([self._look, *[self._session] * SESSIONS])
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _guarded(self, work: Callable[[mzsql.Connection], None]) -> None:
        try:
            with mzsql.connect(str(self._at.folder / "env")) as connection:
                connection.execute("SET statement_timeout = '10 min'")
                work(connection)
        except BaseException as failure:
            self._failures.append(failure)
            self._stop.set()

    def _over(self) -> bool:
        return self._stop.is_set() or time.perf_counter() - self._began >= self._seconds

    def _warmed(self) -> bool:
        return time.perf_counter() - self._began >= self._seconds * _WARM

    def _session(self, connection: mzsql.Connection) -> None:
        while not self._over():
            with self._lock:
                number = next(self._numbers)
            due = self._began + number / PER_SECOND
            while (left := due - time.perf_counter()) > 0 and not self._over():
                time.sleep(min(left, 0.1))
            begun = time.perf_counter()
            _commit(connection, tick(number))
            took = time.perf_counter() - begun
            with self._lock:
                self.done += 1
                if self._warmed():
                    self.took.append(took)

    def _look(self, connection: mzsql.Connection) -> None:
        frontiers = (
            "SELECT v.name, f.write_frontier::text::bigint FROM mz_internal.mz_frontiers AS f "
            "JOIN mz_catalog.mz_materialized_views AS v ON v.id = f.object_id"
        )
        while not self._over():
            now = time.time() * 1000
            rows = connection.execute(frontiers).fetchall()
            if self._warmed():
                for view, frontier in rows:
                    self.lags[view].append(max(0.0, now - frontier) / 1000)
            time.sleep(_LOOK_SECONDS)


def _commit(connection: mzsql.Connection, statements: Sequence[str]) -> None:
    connection.execute("BEGIN")
    for statement in statements:
        connection.execute(statement)
    connection.execute("COMMIT")
