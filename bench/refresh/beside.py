"""Case g: ticks of three views alone, and while others hydrate.

Q1, Q3 and Q18 are there; a tick is that of case a. Then TPC-H's queries are created once more under other names and hydrate with the
engine that `step_engine` has by default, in process without Spark, and ticks go on until all of them are hydrated. Spark has been started
by then where it takes part.
"""

from __future__ import annotations

import threading
from time import perf_counter

from figures import Case, median, percentile, scratch
from meter import Meter
from options import Options
from ticks import tick
from tpch import FEW, Loaded, create_view, loaded

import mzsql

#: The median while others hydrate over that alone.
OVER_ALONE = 2


def beside(options: Options, meter: Meter) -> Case:
    """At each scale."""
    del meter
    case = Case("g", "ticks of three views while others hydrate")
    for scale in options.scales:
        with scratch(options.directory) as folder, loaded(folder, scale) as at:
            at.hydrate(FEW)
            if options.spark:
                at.connection.spark.session.range(1).collect()
            else:
                at.connection.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
            alone = [_tick(at, number) for number in range(options.rounds)]
            alone = alone[options.rounds // 3 :]
            hydration = _Hydration(at, options)
            meanwhile, number = [], options.rounds
            while hydration.goes_on():
                meanwhile.append(_tick(at, number))
                number += 1
            seconds = hydration.ended()
            at.judge.run(s for one in range(number) for s in tick(one))
            at.check(FEW)
        case.row(
            scale=f"{scale:g}",
            views_hydrated=len(options.queries),
            hydration_s=seconds,
            alone_p50_ms=median(alone) * 1000,
            ticks_meanwhile=len(meanwhile),
            meanwhile_p50_ms=median(meanwhile) * 1000,
            meanwhile_p99_ms=percentile(meanwhile, 99) * 1000,
        )
        over = median(meanwhile) / median(alone)
        case.target(f"ticks meanwhile over alone at SF {scale:g}", over, most=OVER_ALONE)
    return case


def _tick(at: Loaded, number: int) -> float:
    at.change(tick(number))
    begun = perf_counter()
    at.read(FEW)
    return perf_counter() - begun


class _Hydration:
    """Creates views in a session of its own and waits for them."""

    def __init__(self, at: Loaded, options: Options) -> None:
        self._at, self._views = at, options.queries
        self._seconds = 0.0
        self._failures: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, name="bench-hydration")
        self._thread.start()

    def goes_on(self) -> bool:
        return self._thread.is_alive()

    def ended(self) -> float:
        """How long it took; what failed is raised."""
        self._thread.join()
        if self._failures:
            raise self._failures[0]
        return self._seconds

    def _run(self) -> None:
        begun = perf_counter()
        try:
            with mzsql.connect(str(self._at.folder / "env")) as connection:
                connection.execute("SET statement_timeout = '60 min'")
                for view in self._views:
                    # Others' names, so that they are views of their own.
                    connection.execute(
                        create_view(view).replace(f"VIEW {view}", f"VIEW again_{view}", 1)
                    )
                for view in self._views:
                    connection.execute(f"SELECT count(*) FROM again_{view}").fetchall()
        except BaseException as failure:
            self._failures.append(failure)
        self._seconds = perf_counter() - begun
