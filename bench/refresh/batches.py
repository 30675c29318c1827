"""Cases c and d: a share of all orders with their lines arrives and as many leave, in one transaction, with TPC-H's 22 queries as views.

Arriving orders are others' copies under new keys and at other prices, so that no LIMIT cuts between equals. With *random* keys those that
arrive and those that leave are from all over the table, with *clustered* ones the newest keys arrive and the oldest leave. Files of what
arrives and a table of what leaves are made before. A batch is timed from the commit's return until every view has been read; what each
view's own steps took is what the environment tells. Engines recompute over files of the rows as they are after the last batch: the
tables' size does not change, so it is what they would take after any.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from contenders import Recomputed, recompute
from figures import Case, median, scratch, shown
from meter import Cost, Meter, columns
from options import Options
from tpch import Loaded, Refresh, engines, loaded

from mzsql.cli.demo import TABLES

#: Case c: of all orders, the share that arrives and the share that leaves.
SHARE = 0.001
#: Case d: others, and a number of orders that is the same at each scale.
SHARES = (0.0001, 0.01)
ORDERS = 150
KEYS = ("random", "clustered")
#: How many times as fast as recomputing, as a geometric mean over the views; none may be slower.
TIMES = {
    ("random", "Spark"): 20,
    ("clustered", "Spark"): 40,
    ("random", "DuckDB"): 2,
    ("clustered", "DuckDB"): 4,
}
#: With all steps on Spark: of Spark's time, and how much slower than it a view may be.
ON_SPARK = {"random": 1.5, "clustered": 4}
WORST_ON_SPARK = 0.5
#: The time at the last scale over that at the first, with as many orders.
GROWTH = 1.3
_WARM = 2


@dataclass(frozen=True)
class Change:
    """What each transaction of a series changes; `orders` arrive and as many leave."""

    keys: str
    orders: int


@dataclass(frozen=True)
class Series:
    """What the batches of a series took; `steps` has each view's seconds a batch, views that nothing changed are not in it."""

    change: Change
    writing: list[float]
    fresh: list[float]
    costs: list[Cost]
    refreshes: list[Refresh]
    steps: Mapping[str, list[float]]
    recomputed: Recomputed

    def times(self, engine: str) -> dict[str, float]:
        """For each changed view, how many times as long the engine takes as its steps."""
        took = self.recomputed.all_of_them()[engine]
        return {view: took[view] / median(seconds) for view, seconds in self.steps.items()}


def one_size(options: Options, meter: Meter) -> Case:
    """One size of change, random and clustered keys."""
    case = Case(
        "c", f"{SHARE:.2%} of the orders with their lines arrive and as many leave, 22 views"
    )
    for scale in options.scales:
        with at_scale(options, scale) as (at, number):
            changes = [Change(keys, _orders(SHARE, number)) for keys in KEYS]
            for series in run(at, changes, options, meter):
                _row(case, scale, number, series)
                _views(case, scale, series)
                if scale == options.scales[-1]:
                    _targets(case, scale, series, options.step_engine)
    return case


def sizes(options: Options, meter: Meter) -> Case:
    """Other sizes, and one number of orders at each scale."""
    shares = " and ".join(f"{share:.2%}" for share in SHARES)
    case = Case("d", f"{shares} of the orders, and {ORDERS} orders at each scale, 22 views")
    same: dict[str, list[float]] = {keys: [] for keys in KEYS}
    for scale in options.scales:
        with at_scale(options, scale) as (at, number):
            amounts = sorted({ORDERS, *(_orders(share, number) for share in SHARES)})
            changes = [Change(keys, orders) for keys in KEYS for orders in amounts]
            for series in run(at, changes, options, meter):
                _row(case, scale, number, series)
                if series.change.orders == ORDERS:
                    same[series.change.keys].append(median(series.fresh))
    first, last = options.scales[0], options.scales[-1]
    if first < last:
        for keys, fresh in same.items():
            what = f"{ORDERS} orders with {keys} keys, SF {last:g} over SF {first:g}"
            case.target(what, fresh[-1] / fresh[0], most=GROWTH)
    return case


def _orders(share: float, number: int) -> int:
    return max(1, round(share * number))


@contextmanager
def at_scale(options: Options, scale: float) -> Iterator[tuple[Loaded, int]]:
    """An environment with the 22 views, and how many orders it has."""
    with scratch(options.directory) as folder, loaded(folder, scale) as at:
        leaving = "CREATE TABLE leaving (series integer, batch integer, key bigint)"
        at.connection.execute(leaving)
        at.judge.run([leaving])
        at.hydrate(options.queries)
        at.connection.execute(f"ALTER SYSTEM SET step_engine = '{options.step_engine}'")
        yield at, at.judge.value("SELECT count(*) FROM orders")


def run(at: Loaded, changes: Sequence[Change], options: Options, meter: Meter) -> Iterator[Series]:
    """One series after the other; after each the views are compared with the judge's answers."""
    last_key = at.judge.value("SELECT max(o_orderkey) FROM orders")
    for number, change in enumerate(changes):
        folder = at.folder / f"series{number}"
        (folder / "after").mkdir(parents=True)
        _prepare(at, folder, number, change, _WARM + options.batches, last_key)
        writing, fresh, costs, refreshes = [], [], [], []
        steps: dict[str, list[float]] = {}
        for batch in range(_WARM + options.batches):
            upper = at.upper()
            wrote, took, cost = _batch(at, folder, options.queries, number, batch, meter)
            if batch < _WARM:
                continue
            writing.append(wrote)
            fresh.append(took)
            costs.append(cost)
            ran = at.refreshes("step", upper)
            refreshes += ran
            for view in {one.view for one in ran}:
                seconds = sum(one.seconds for one in ran if one.view == view)
                steps.setdefault(view, []).append(seconds)
        at.judge.run(
            statement
            for batch in range(_WARM + options.batches)
            for statement in _deletes(number, batch) + _inserts(folder, batch)
        )
        at.check(options.queries)
        at.judge.export(TABLES, folder / "after")
        session = at.connection.spark.session if options.spark else None
        recomputed = recompute(folder / "after", options.queries, session)
        yield Series(change, writing, fresh, costs, refreshes, steps, recomputed)


def _prepare(
    at: Loaded, folder: Path, number: int, change: Change, batches: int, last_key: int
) -> None:
    """Orders in slots of as many as a batch has: batch b removes slot b and adds copies of slot b + 1, which are here until then."""
    there = at.judge.value("SELECT count(*) FROM orders WHERE o_orderkey % 32 < 8")
    if change.orders * (batches + 1) > there:
        raise SystemExit(
            f"{batches} transactions of {change.orders} orders each need more than the {there} orders of this scale: "
            "fewer --batches or larger --scales"
        )
    if change.keys == "random":
        # TPC-H uses the first eight keys of each 32; no series takes another's.
        chosen, order = f"o_orderkey % 32 < 8 AND o_orderkey <= {last_key}", "hash(o_orderkey)"
        new = f"o_orderkey + {8 * (number % 3 + 1)}"
    else:
        chosen, order = "true", "o_orderkey"
        new = "o_orderkey + (SELECT (max(o_orderkey) // 32 + 1) * 32 FROM orders)"
    at.judge.run(
        [
            "CREATE OR REPLACE TABLE moving AS FROM "
            f"(SELECT (row_number() OVER (ORDER BY {order}) - 1) // {change.orders} AS slot, "
            f"o_orderkey AS key, {new} AS new FROM orders WHERE {chosen}) WHERE slot <= {batches}",
            f"COPY (SELECT {number}::integer AS series, slot::integer AS batch, key FROM moving) TO '{folder}/leaving.parquet'",
            f"INSERT INTO leaving FROM read_parquet('{folder}/leaving.parquet')",
            *(_arriving(folder, batch) for batch in range(batches)),
            *(_arriving_lines(folder, batch) for batch in range(batches)),
        ]
    )
    at.connection.execute(f"COPY leaving FROM '{folder}/leaving.parquet' (FORMAT PARQUET)")


def _arriving(folder: Path, batch: int) -> str:
    price = "(o_totalprice + (hash(new) % 1000)::decimal(15, 2) / 100)::decimal(15, 2)"
    rows = f"SELECT orders.* REPLACE (new AS o_orderkey, {price} AS o_totalprice) FROM orders JOIN moving ON key = o_orderkey"
    return f"COPY ({rows} WHERE slot = {batch + 1}) TO '{folder}/orders{batch}.parquet'"


def _arriving_lines(folder: Path, batch: int) -> str:
    price = (
        "(l_extendedprice + (hash(new, l_linenumber) % 1000)::decimal(15, 2) / 100)::decimal(15, 2)"
    )
    rows = f"SELECT lineitem.* REPLACE (new AS l_orderkey, {price} AS l_extendedprice) FROM lineitem JOIN moving ON key = l_orderkey"
    return f"COPY ({rows} WHERE slot = {batch + 1}) TO '{folder}/lineitem{batch}.parquet'"


def _copies(folder: Path, batch: int) -> list[str]:
    return [
        f"COPY {table} FROM '{folder}/{table}{batch}.parquet' (FORMAT PARQUET)"
        for table in ("orders", "lineitem")
    ]


def _inserts(folder: Path, batch: int) -> list[str]:
    """What the judge does for `_copies`."""
    return [
        f"INSERT INTO {table} FROM read_parquet('{folder}/{table}{batch}.parquet')"
        for table in ("orders", "lineitem")
    ]


def _deletes(number: int, batch: int) -> list[str]:
    keys = f"SELECT key FROM leaving WHERE series = {number} AND batch = {batch}"
    return [
        f"DELETE FROM {table} WHERE {key} IN ({keys})"
        for table, key in (("orders", "o_orderkey"), ("lineitem", "l_orderkey"))
    ]


def _batch(
    at: Loaded, folder: Path, views: Sequence[str], number: int, batch: int, meter: Meter
) -> tuple[float, float, Cost]:
    """Seconds of the transaction with its commit, seconds from there until all views have been read; what was asked from the commit on."""
    begun = perf_counter()
    at.connection.execute("BEGIN")
    for statement in _deletes(number, batch) + _copies(folder, batch):
        at.connection.execute(statement)
    mark = meter.mark()
    at.connection.execute("COMMIT")
    committed = perf_counter()
    at.read(views)
    read = perf_counter()
    return committed - begun, read - committed, meter.since(mark)


def _row(case: Case, scale: float, number: int, series: Series) -> None:
    figures: dict[str, Any] = {}
    for engine, took in series.recomputed.all_of_them().items():
        times = series.times(engine)
        slowest = min(times, key=lambda view: times[view])
        figures |= {
            f"{engine}_recomputing_all_ms": sum(took.values()) * 1000,
            f"{engine}_over_steps": statistics.geometric_mean(times.values()),
            f"worst_over_{engine}": f"{slowest} {shown(times[slowest])}",
        }
    case.row(
        scale=f"{scale:g}",
        keys=series.change.keys,
        orders_in_and_out=series.change.orders,
        share=f"{series.change.orders / number:.2%}",
        batches=len(series.fresh),
        writing_ms=median(series.writing) * 1000,
        fresh_ms=median(series.fresh) * 1000,
        **columns(series.costs),
        KiB_read_by_steps=sum(one.bytes for one in series.refreshes) / len(series.fresh) / 1024,
        jobs_a_step=median([one.jobs for one in series.refreshes]),
        most_jobs_a_step=max(one.jobs for one in series.refreshes),
        rows_into_steps=round(sum(one.rows for one in series.refreshes) / len(series.fresh)),
        steps_ran_on=engines(series.refreshes),
        **figures,
    )


def _views(case: Case, scale: float, series: Series) -> None:
    """Each view's own times, as a note."""
    recomputed = series.recomputed.all_of_them()
    told = []
    for view in series.recomputed.duckdb:
        others = ", ".join(f"{who} {shown(took[view] * 1000)}" for who, took in recomputed.items())
        steps = series.steps.get(view)
        mine = "not changed" if steps is None else shown(median(steps) * 1000)
        told.append(f"{view} {mine} ({others})")
    case.notes.append(
        f"ms of each view's steps at SF {scale:g} with {series.change.keys} keys, and recomputing: {'; '.join(told)}"
    )


def _targets(case: Case, scale: float, series: Series, step_engine: str) -> None:
    keys = series.change.keys
    for engine in series.recomputed.all_of_them():
        least, worst_least = float(TIMES[keys, engine]), 1.0
        if step_engine == "spark":
            if engine != "Spark":
                continue
            least, worst_least = ON_SPARK[keys], WORST_ON_SPARK
        times = series.times(engine)
        what = f"{engine} recomputing over steps at SF {scale:g}, {keys} keys"
        mean = statistics.geometric_mean(times.values())
        case.target(f"{what}, geometric mean", mean, least=least)
        worst = min(times, key=lambda view: times[view])
        case.target(f"{what}, the slowest view ({worst})", times[worst], least=worst_least)
