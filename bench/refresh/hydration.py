"""Case f: from CREATE MATERIALIZED VIEW of TPC-H's 22 queries until all of them can be read, in process and on Spark.

All are created one after the other, as a person would, and hydrate beside each other; the time of all is measured, and what each one's
hydration took is what the environment tells. Whoever runs a query plainly, once and over files, does so in the same run before: Spark is
warm by then.
"""

from __future__ import annotations

from time import perf_counter

from contenders import Recomputed, recompute
from figures import Case, scratch, shown
from meter import Meter, columns
from options import Options
from tpch import Refresh, loaded

#: On Spark, of all views' hydrations, over Spark's plain runs of all queries.
OVER_PLAIN = 2.5
#: In process, at this scale.
SECONDS, AT_SCALE = 10, 0.1
#: What runs a hydration, as `step_engine` says, and who runs the queries plainly beside it.
WHERE = {"duckdb": "DuckDB", "spark": "Spark"}


def hydration(options: Options, meter: Meter) -> Case:
    """Both engines at each scale, each in an environment of its own."""
    case = Case("f", "hydration of the 22 views of TPC-H, all created at once, s")
    for scale in options.scales:
        with scratch(options.directory) as folder:
            plain: Recomputed | None = None
            for engine, who in WHERE.items():
                if who == "Spark" and not options.spark:
                    continue
                with loaded(folder, scale, engine) as at:
                    if plain is None:
                        session = at.connection.spark.session if options.spark else None
                        plain = recompute(at.files, options.queries, session)
                    at.connection.execute(f"ALTER SYSTEM SET step_engine = '{engine}'")
                    mark, begun = meter.mark(), perf_counter()
                    at.create(options.queries)
                    at.await_(options.queries)
                    seconds, cost = perf_counter() - begun, meter.since(mark)
                    ran = at.refreshes("hydration")
                    at.check(options.queries)
                runs = plain.all_of_them()[who]
                over = seconds / sum(runs.values())
                case.row(
                    scale=f"{scale:g}",
                    engine=engine,
                    seconds=seconds,
                    **columns([cost]),
                    KiB_read=sum(one.bytes for one in ran) / 1024,
                    plain_runs_of=who,
                    plain_seconds=sum(runs.values()),
                    over_plain=over,
                )
                case.notes.append(_views(scale, engine, ran, runs))
                if who == "Spark":
                    case.target(f"on Spark over plain runs at SF {scale:g}", over, most=OVER_PLAIN)
                elif scale == AT_SCALE:
                    case.target(f"in process at SF {scale:g}, s", seconds, most=SECONDS)
    return case


def _views(scale: float, engine: str, ran: list[Refresh], plain: dict[str, float]) -> str:
    """Each view's own hydration, beside the others', and its query's plain run."""
    took = {one.view: one.seconds for one in ran}
    told = "; ".join(f"{view} {shown(took[view])} ({shown(plain[view])})" for view in plain)
    return f"s of each view's hydration at SF {scale:g} with '{engine}', and of a plain run: {told}"
