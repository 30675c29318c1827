"""Case i: TPC-H's queries asked once, over tables, with no view there.

Each query is asked through the connection as a client would, until all its rows are here: with `step_engine` at `auto`, which has them run
in this process, and at `spark`. Beside that DuckDB and Spark run the same query over plain Parquet of the same rows. All are warm, and
take turns. On a machine that others use, too, the processor time tells more than the time; what Spark takes of it is not this process's.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import ExitStack
from time import perf_counter, process_time

from contenders import DuckDb, Recomputing, Spark
from figures import Case, median, scratch
from figures import rounds as taking_turns
from meter import Meter
from options import Options
from tpch import Loaded, loaded, query

#: Geometric means over the queries, of our time over theirs.
OVER_DUCKDB, OVER_SPARK = 2, 1.2
_REPEATS = 3


def oneshot(options: Options, meter: Meter) -> Case:
    """At each scale."""
    del meter
    case = Case("i", "TPC-H's queries asked once, ms")
    for scale in options.scales:
        with (
            scratch(options.directory) as folder,
            loaded(folder, scale) as at,
            ExitStack() as stack,
        ):
            duck = stack.enter_context(DuckDb(at.files))
            _beside(case, at, scale, "auto", "DuckDB", duck, options, OVER_DUCKDB)
            if options.spark:
                spark = Spark(at.connection.spark.session, at.files)
                _beside(case, at, scale, "spark", "Spark", spark, options, OVER_SPARK)
    return case


def _beside(
    case: Case,
    at: Loaded,
    scale: float,
    engine: str,
    who: str,
    contender: Recomputing,
    options: Options,
    most: float,
) -> None:
    at.connection.execute(f"ALTER SYSTEM SET step_engine = '{engine}'")
    ratios, cpu_ratios = [], []
    for view in options.queries:
        cpu: dict[str, list[float]] = {"ours": [], who: []}
        turns = {
            "ours": _counted(lambda view=view: _asked(at, view), cpu["ours"]),
            who: _counted(lambda view=view: contender.seconds(view), cpu[who]),
        }
        took = taking_turns(_REPEATS, turns, warm=1)
        ours, theirs = median(took["ours"]), median(took[who])
        ratios.append(ours / theirs)
        ours_cpu, theirs_cpu = (median(one[-_REPEATS:]) for one in cpu.values())
        cpu_ratios.append(ours_cpu / theirs_cpu)
        case.row(
            scale=f"{scale:g}",
            step_engine=engine,
            query=view,
            ours_ms=ours * 1000,
            beside=who,
            theirs_ms=theirs * 1000,
            over=ours / theirs,
            **({"cpu_over": cpu_ratios[-1]} if engine == "auto" else {}),
        )
        contents = at.connection.execute(query(view, "postgres")).arrow()
        at.judge.check(view, query(view), contents)
    at.connection.execute("ALTER SYSTEM RESET step_engine")
    if engine == "auto":
        case.row(
            scale=f"{scale:g}",
            step_engine=engine,
            query="all, geometric mean",
            beside=who,
            over=statistics.geometric_mean(ratios),
            cpu_over=statistics.geometric_mean(cpu_ratios),
        )
    mean = statistics.geometric_mean(ratios)
    case.target(f"{engine} over {who} at SF {scale:g}, geometric mean", mean, most=most)


def _counted(asked: Callable[[], float], cpu: list[float]) -> Callable[[], float]:
    """What is asked, noting the processor time of this process that it takes."""

    def counted() -> float:
        begun = process_time()
        seconds = asked()
        cpu.append(process_time() - begun)
        return seconds

    return counted


def _asked(at: Loaded, view: str) -> float:
    text = query(view, "postgres")
    begun = perf_counter()
    at.connection.execute(text).fetchall()
    return perf_counter() - begun
