"""Case a: what it costs a hydration that replicas tell of themselves.

TPC-H's 22 views are made in process, and dropped, again and again in one environment, in pairs: once while the replica tells of its
frontiers and of where its time goes, once while it does not; which is first changes from pair to pair. What counts is the time of
processors that the process takes, which depends less on other work on the machine than time does. The first pair warms up.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from figures import Case, scratch
from tpch import Loaded, loaded

#: With over without, in processors' time.
OVER = 1.015
SWITCH = "enable_introspection_subscribes"


def told(scales: Sequence[float], queries: Sequence[str], pairs: int, directory: Path) -> Case:
    """Pairs of hydrations at each scale."""
    case = Case(
        "a", "hydration of the 22 views of TPC-H, while their replica tells of itself or not, s"
    )
    for scale in scales:
        with scratch(directory) as folder, loaded(folder, scale, "told") as at:
            at.connection.execute("ALTER SYSTEM SET step_engine = 'duckdb'")
            found: dict[str, list[tuple[float, float]]] = {"on": [], "off": []}
            for number in range(pairs + 1):
                for switch in ("on", "off") if number % 2 else ("off", "on"):
                    took = _hydration(at, queries, switch)
                    if number:
                        found[switch].append(took)
            with_, without = (median(cpu for cpu, _ in found[one]) for one in ("on", "off"))
            over = median(
                on / off for (on, _), (off, _) in zip(found["on"], found["off"], strict=True)
            )
            case.row(
                scale=f"{scale:g}",
                pairs=pairs,
                cpu_seconds_with=with_,
                cpu_seconds_without=without,
                seconds_with=median(wall for _, wall in found["on"]),
                seconds_without=median(wall for _, wall in found["off"]),
                with_over_without=over,
            )
            case.target(f"with over without at SF {scale:g}", over, most=OVER)
    return case


def _hydration(at: Loaded, queries: Sequence[str], switch: str) -> tuple[float, float]:
    """Seconds of processors, and seconds, that it takes until all views can be read."""
    at.connection.execute(f"ALTER SYSTEM SET {SWITCH} = {switch}")
    cpu, wall = process_time(), perf_counter()
    at.create(queries)
    at.await_(queries)
    took = process_time() - cpu, perf_counter() - wall
    for view in reversed(queries):
        at.connection.execute(f"DROP MATERIALIZED VIEW {view}")
    return took
