"""How long it takes to bring TPC-H views up to date after a change, against Spark recomputing the same query from the same tables.

    python bench/refresh.py                          # scale 0.01 and 0.1, one order in a thousand, 5 rounds
    python bench/refresh.py --scales 0.1,1 --fraction 0.0001 --rounds 20

Both sides run in one process on one Spark session, alternating; a round inserts copies of orders and their lines under new keys, drawn from
all over the key space. The refresh is timed by itself (what the step took) and as a reader sees it (from the commit to the answer); the
recomputation is the query alone over plain Parquet, the better of two runs. Medians over the rounds, the first round left out.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import mzsql
from mzsql.cli.demo import TABLES, generate
from mzsql.cli.recompute import Recomputation, query_of
from mzsql.cli.script import shipped, shipped_steps

VIEWS = {"q1": "tpch/q01.sql", "q3": "tpch/q03.sql", "q18": "tpch/q18.sql"}
KEYS_APART = 10_000_000

LINES = """
INSERT INTO lineitem
SELECT l_orderkey + %(shift)s, l_partkey, l_suppkey, l_linenumber, l_quantity, l_extendedprice, l_discount, l_tax, l_returnflag,
    l_linestatus, l_shipdate, l_commitdate, l_receiptdate, l_shipinstruct, l_shipmode, l_comment
FROM lineitem WHERE l_orderkey %% %(every)s = %(round)s AND l_orderkey < %(apart)s
"""
ORDERS = """
INSERT INTO orders
SELECT o_orderkey + %(shift)s, o_custkey, o_orderstatus, o_totalprice, o_orderdate, o_orderpriority, o_clerk, o_shippriority, o_comment
FROM orders WHERE o_orderkey %% %(every)s = %(round)s AND o_orderkey < %(apart)s
"""


@dataclass
class Measured:
    """What one view took in each round."""

    step: list[float] = field(default_factory=list)
    fresh: list[float] = field(default_factory=list)
    recompute: list[float] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    read: list[int] = field(default_factory=list)
    files: int = 0


def rows(connection: Any, query: str, parameters: Any = None) -> list[tuple[Any, ...]]:
    cursor = connection.cursor()
    cursor.execute(query, parameters)
    return list(cursor.fetchall())


def refreshes(connection: Any, view: str, since: Any) -> list[tuple[Any, ...]]:
    return rows(
        connection,
        "SELECT r.rows_in, r.jobs, r.bytes_read, r.seconds FROM mz_internal.mz_refreshes AS r "
        "JOIN mz_catalog.mz_objects AS o ON o.id = r.object_id "
        "WHERE o.name = %s AND r.upper > %s AND r.kind = 'step'",
        [view, since],
    )


def prepare(folder: Path, scale: float) -> Any:
    generate(folder / "tpch", scale)
    connection = mzsql.connect(str(folder / "env"))
    # Long enough for a hydration on a machine that others use too.
    connection.execute("SET statement_timeout = '20 min'")
    cursor = connection.cursor()
    for step in shipped_steps("quickstart.sql"):
        if step.title in ("tables", "load", "views"):
            for statement in step.statements:
                cursor.execute(statement.replace("'tpch/", f"'{folder}/tpch/"))
    for view in VIEWS:
        rows(connection, f"SELECT count(*) FROM {view}")
    return connection


def run_round(
    connection: Any,
    recomputation: Recomputation,
    number: int,
    every: int,
    measured: dict[str, Measured],
) -> None:
    since = rows(
        connection, "SELECT coalesce(max(upper), 0::mz_timestamp) FROM mz_internal.mz_refreshes"
    )[0][0]
    change = {
        "shift": KEYS_APART * (number + 1),
        "every": every,
        "round": number + 1,
        "apart": KEYS_APART,
    }
    cursor = connection.cursor()
    cursor.execute(LINES, change)
    cursor.execute(ORDERS, change)
    begun = perf_counter()
    contents = {}
    for view in VIEWS:
        contents[view] = connection.execute(f"SELECT * FROM {view}").arrow()
        measured[view].fresh.append(perf_counter() - begun)
    recomputation.load({t: connection.execute(f"SELECT * FROM {t}").arrow() for t in TABLES})
    for view, file in VIEWS.items():
        steps = refreshes(connection, view, since)
        recomputed = recomputation.run(query_of(shipped(file)))
        different = recomputation.differences(recomputed, contents[view])
        if different:
            raise SystemExit(f"{view} differs from its recomputation in {different} rows")
        one = measured[view]
        one.changes.append(sum(int(s[0]) for s in steps))
        one.jobs.append(sum(int(s[1]) for s in steps))
        one.read.append(sum(int(s[2]) for s in steps))
        one.step.append(sum(float(s[3]) for s in steps))
        one.recompute.append(recomputed.seconds)
        one.files = recomputed.bytes


def bench(scale: float, fraction: float, rounds: int) -> None:
    measured = {view: Measured() for view in VIEWS}
    with tempfile.TemporaryDirectory(prefix="mzsql-bench-") as name:
        folder = Path(name)
        (folder / "recompute").mkdir()
        with prepare(folder, scale) as connection:
            recomputation = Recomputation(connection.spark.session, folder / "recompute")
            for number in range(rounds + 1):
                run_round(
                    connection,
                    recomputation,
                    number,
                    max(rounds + 2, round(1 / fraction)),
                    measured,
                )
    for view, one in measured.items():
        step, fresh, recompute = (
            statistics.median(values[1:]) for values in (one.step, one.fresh, one.recompute)
        )
        print(
            f"| {scale:g} | {view} | {statistics.median(one.changes[1:]):.0f} | {step * 1000:.0f} | {fresh * 1000:.0f} "
            f"| {recompute * 1000:.0f} | {recompute / step:.2f} | {statistics.median(one.jobs[1:]):.0f} "
            f"| {statistics.median(one.read[1:]) / 1024:.0f} | {one.files / 1024:.0f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--scales", default="0.01,0.1")
    parser.add_argument("--fraction", type=float, default=0.001)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    print(
        "| scale | view | changed rows | step ms | fresh after ms | recompute ms | recompute : step | jobs | read KiB | tables KiB |\n"
        "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    for scale in given.scales.split(","):
        bench(float(scale), given.fraction, given.rounds)


if __name__ == "__main__":
    main()
