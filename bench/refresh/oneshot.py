"""Case i: TPC-H's queries asked once, over tables, with no view there.

Each query is asked through the connection as a client would, until all its rows are here: with `step_engine` at `auto`, which has them run
in this process, and at `spark`. Beside that DuckDB and Spark run the same query over plain Parquet of the same rows. All are warm, and
take turns.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack
from time import perf_counter

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
    ratios = []
    for view in options.queries:
        turns = {
            "ours": lambda view=view: _asked(at, view),
            who: lambda view=view: contender.seconds(view),
        }
        took = taking_turns(_REPEATS, turns, warm=1)
        ours, theirs = median(took["ours"]), median(took[who])
        ratios.append(ours / theirs)
        case.row(
            scale=f"{scale:g}",
            step_engine=engine,
            query=view,
            ours_ms=ours * 1000,
            beside=who,
            theirs_ms=theirs * 1000,
            over=ours / theirs,
        )
        contents = at.connection.execute(query(view, "postgres")).arrow()
        at.judge.check(view, query(view), contents)
    at.connection.execute("ALTER SYSTEM RESET step_engine")
    mean = statistics.geometric_mean(ratios)
    case.target(f"{engine} over {who} at SF {scale:g}, geometric mean", mean, most=most)


def _asked(at: Loaded, view: str) -> float:
    text = query(view, "postgres")
    begun = perf_counter()
    at.connection.execute(text).fetchall()
    return perf_counter() - begun
