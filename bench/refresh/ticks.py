"""Cases a and b: how soon one small transaction is in the views that depend on it.

A round commits one order of seven lines and reads the views; it is timed from the commit's return until the last answer is there. What it
costs is the whole process's from the first INSERT on, so the writes are in it, and what is made durable behind them. Beside it DuckDB
computes the views' queries anew over Parquet files of the tables, in the same process. The first third of the rounds warms up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

from contenders import DuckDb
from figures import Case, median, percentile, scratch
from meter import Cost, Meter, columns
from options import Options
from tpch import FEW, Loaded, Refresh, engines, loaded

FIRST_KEY = 900_000_000
LINES = 7
#: Case a: ms of the median and the 99th percentile, the median at the largest scale over that at the least, CPU ms a tick.
P50_MS, P99_MS, GROWTH, CPU_MS = 60, 250, 1.2, 150
#: Case b.
ALL_P50_MS = 250
#: DuckDB computes anew in one round of so many.
RECOMPUTE_EVERY = 10


@dataclass(frozen=True)
class Ticks:
    """What rounds took."""

    fresh: list[float]
    costs: list[Cost]
    steps: list[Refresh]
    recomputing: list[float]


def few(options: Options, meter: Meter) -> Case:
    """Three views."""
    case = Case(
        "a", "one order of seven lines, from the commit's return until Q1, Q3 and Q18 are read"
    )
    found = _scales(case, FEW, options, meter)
    for scale, (p50, p99, cpu) in found.items():
        case.target(f"p50 ms at SF {scale:g}", p50, most=P50_MS)
        case.target(f"p99 ms at SF {scale:g}", p99, most=P99_MS)
        case.target(f"cpu ms a tick at SF {scale:g}", cpu, most=CPU_MS)
    first, last = options.scales[0], options.scales[-1]
    if first < last:
        case.target(
            f"p50 at SF {last:g} over SF {first:g}", found[last][0] / found[first][0], most=GROWTH
        )
    return case


def every(options: Options, meter: Meter) -> Case:
    """All 22."""
    case = Case("b", "the same with the 22 queries of TPC-H as views")
    for scale, (p50, _, _) in _scales(case, options.queries, options, meter).items():
        case.target(f"p50 ms at SF {scale:g}", p50, most=ALL_P50_MS)
    return case


def _scales(
    case: Case, views: Sequence[str], options: Options, meter: Meter
) -> dict[float, tuple[float, float, float]]:
    found = {}
    for scale in options.scales:
        with scratch(options.directory) as folder, loaded(folder, scale) as at:
            at.hydrate(views)
            ticks = run(at, views, options.rounds, meter)
            at.check(views)
        found[scale] = _row(case, scale, ticks)
    return found


def run(at: Loaded, views: Sequence[str], rounds: int, meter: Meter) -> Ticks:
    """Rounds of one tick each; the judge is told of them afterwards, as its work is none of ours."""
    ticks = Ticks([], [], [], [])
    statements = []
    with DuckDb(at.files) as duck:
        for number in range(rounds):
            upper, mark = at.upper(), meter.mark()
            at.change(tick(number))
            begun = perf_counter()
            at.read(views)
            took = perf_counter() - begun
            cost = meter.since(mark)
            statements += tick(number)
            if number % RECOMPUTE_EVERY == RECOMPUTE_EVERY - 1 or number == rounds - 1:
                ticks.recomputing.append(sum(duck.seconds(view) for view in views))
            if number >= rounds // 3:
                ticks.fresh.append(took)
                ticks.costs.append(cost)
                ticks.steps.extend(at.refreshes("step", upper))
    at.judge.run(statements)
    return ticks


def _row(case: Case, scale: float, ticks: Ticks) -> tuple[float, float, float]:
    p50, p99 = median(ticks.fresh) * 1000, percentile(ticks.fresh, 99) * 1000
    cost = columns(ticks.costs)
    recomputing = median(ticks.recomputing) * 1000
    case.row(
        scale=f"{scale:g}",
        rounds=len(ticks.fresh),
        fresh_p50_ms=p50,
        fresh_p99_ms=p99,
        **cost,
        KiB_read_by_steps=sum(one.bytes for one in ticks.steps) / len(ticks.fresh) / 1024,
        DuckDB_recomputing_ms=recomputing,
        recomputing_over_fresh=recomputing / p50,
        steps_ran_on=engines(ticks.steps),
    )
    return p50, p99, cost["cpu_ms"]


def tick(number: int) -> list[str]:
    """The statements of one transaction: an order and its lines. No two orders have the same revenue, so no LIMIT cuts between equals."""
    key = FIRST_KEY + number
    price = f"{1000 + number // 100}.{number % 100:02d}"
    lines = ", ".join(
        f"({key}, {number + 1}, {number % 50 + 1}, {line}, {10 + line}, {price}, 0.05, 0.02, 'A', 'F', "
        "'1995-04-01', '1995-04-02', '1995-04-03', 'NONE', 'AIR', 'c')"
        for line in range(LINES)
    )
    order = f"({key}, {number * 7 + 1}, 'O', 7000.00, '1995-03-01', '1-URGENT', 'Clerk', 0, 'x')"
    return [f"INSERT INTO orders VALUES {order}", f"INSERT INTO lineitem VALUES {lines}"]
