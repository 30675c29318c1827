"""Case n: the first changes after views are hydrated, and after their environment is opened again.

Views are hydrated with each engine; then come ticks as those of case a, each timed from the commit's return until all views are read: the
first one, and the median of those that follow once as many as warm up are over. The environment is closed and opened again in this
process, and ticks come at once: *reopened* is the first of them, *5 s on* the median of those that began later than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from figures import Case, median, scratch
from hydration import WHERE
from meter import Meter
from options import Options
from ticks import P50_MS, tick
from tpch import FEW, Loaded, loaded, reopened

#: Seconds after opening, from which on ticks are to cost what they cost otherwise.
SETTLED_S = 5.0
_FOLLOWING = 20
_WARM = 5


def openings(options: Options, meter: Meter) -> Case:
    """Three views and all, at each scale, with each engine."""
    del meter
    case = Case("n", "the first ticks after hydration, and after opening")
    for scale in options.scales:
        for views in (FEW, options.queries):
            for engine in WHERE if options.spark else ("duckdb",):
                _one(case, options, scale, views, engine)
    return case


def _one(case: Case, options: Options, scale: float, views: Sequence[str], engine: str) -> None:
    with scratch(options.directory) as folder:
        with loaded(folder, scale) as at:
            at.connection.execute(f"ALTER SYSTEM SET step_engine = '{engine}'")
            begun = perf_counter()
            at.create(views)
            at.await_(views)
            hydrated = perf_counter() - begun
            at.connection.execute("ALTER SYSTEM RESET step_engine")
            took = [_tick(at, views, number) for number in range(1 + _WARM + _FOLLOWING)]
            at.judge.run(s for number in range(len(took)) for s in tick(number))
            at.check(views)
        with reopened(folder) as at:
            again, begun = list[tuple[float, float]](), perf_counter()
            while (after := perf_counter() - begun) < 2 * SETTLED_S:
                again.append((after, _tick(at, views, len(took) + len(again))))
            numbers = range(len(took), len(took) + len(again))
            at.judge.run(s for number in numbers for s in tick(number))
            at.check(views)
    settled = [seconds for after, seconds in again if after >= SETTLED_S]
    case.row(
        scale=f"{scale:g}",
        views=len(views),
        hydrated_by=engine,
        hydration_s=hydrated,
        first_ms=took[0] * 1000,
        p50_ms=median(took[1 + _WARM :]) * 1000,
        reopened_ms=again[0][1] * 1000,
        then_ms=median([seconds for after, seconds in again if after < SETTLED_S]) * 1000,
        p50_5_s_on_ms=median(settled) * 1000,
    )
    if views == FEW:
        what = f"ticks 5 s after opening, SF {scale:g}, hydrated by {engine}, ms"
        case.target(what, median(settled) * 1000, most=P50_MS)


def _tick(at: Loaded, views: Sequence[str], number: int) -> float:
    at.change(tick(number))
    begun = perf_counter()
    at.read(views)
    return perf_counter() - begun
