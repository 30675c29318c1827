"""Random queries for as long as asked, or one seed again.

python tests/fuzz --seconds 600
python tests/fuzz --seed 4711
python tests/fuzz --views --seconds 600
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
sys.path.append(str(Path(__file__).parents[2] / "plugins" / "mzsql-postgres" / "tests"))

from fuzz_engines import Failure, Worlds
from fuzz_follow import followed
from fuzz_maintained import Maintained, Tally, plan_of, run_plan, shrunk
from fuzz_partitions import broken, law_of, told
from fuzz_run import SHARED, compare, query_of, run, tables_of
from fuzz_steps import in_process
from spark_kit import hydrated_by_spark

#: One in so many groups of seeds has its tables changed under subscriptions.
_FOLLOWED = 4
#: After so many seeds of maintained views all objects are looked through for cycles.
_WHOLE = 25


def _again(worlds: Worlds, seed: int) -> int:
    """What a seed asks, the answers, and where they differ."""
    tables = tables_of(seed)
    worlds.load(tables)
    print(";\n".join(s for table in tables for s in table.statements()) + ";")
    query = query_of(seed, tables)
    print(f"{query};")
    how, ours, theirs = compare(worlds, query)
    print(f"-- mzsql: {ours}\n-- PostgreSQL: {theirs}")
    failed = 0
    if how:
        (found,) = run(worlds, range(seed, seed + 1))
        print(f"-- they differ ({how}); the least that shows it:\n{found}")
        failed = 1
        worlds.load(tables)
    law = law_of(seed, tables)
    print(f"-- {law.name}:\n" + ";\n".join(law.texts()) + ";")
    if broken(worlds, law):
        print(told(worlds, law, seed, tables))
        failed = 1
    return failed


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, help="so many seeds")
    parser.add_argument("--seconds", type=float, help="as many seeds as fit into this time")
    parser.add_argument("--views", action="store_true", help="maintained views instead of queries")
    parser.add_argument("--spark", action="store_true", help="with --views: kept by Spark")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.views:
        return _views(options)
    with tempfile.TemporaryDirectory() as directory, Worlds(Path(directory) / "env") as worlds:
        if options.seed is not None:
            return _again(worlds, options.seed)
        return _many(worlds, options.start, options.count, options.seconds)


def _views(options: argparse.Namespace) -> int:
    """Seeds of maintained views: each difference made smaller, and what was done at the end."""
    spark, kept = None, in_process()
    if options.spark:
        from mzsql.compute.engines.spark_session import local_session  # loads PySpark

        spark, kept = local_session(cores=2), hydrated_by_spark()
    seed, count = (options.start, options.count) if options.seed is None else (options.seed, 1)
    began, cpu, differ = time.monotonic(), time.process_time(), 0
    last = None if count is None else seed + count
    with (
        kept as gate,
        tempfile.TemporaryDirectory() as directory,
        Worlds(Path(directory) / "env", spark) as worlds,
    ):
        world = Maintained(worlds, gate)
        gc.freeze()  # what is there stays there: no collection has to look through it
        # Looking for cycles again and again while trees are made takes an eighth of the time, and so does looking through all that is kept
        # after each seed; what the seed itself has left is looked through at once.
        gc.disable()
        while (last is None or seed < last) and (
            options.seconds is None or time.monotonic() - began < options.seconds
        ):
            found = list(run_plan(world, plan_of(seed)))
            for one in found:
                differ += 1
                print(f"{shrunk(world, one) if options.seed is not None else one}\n", flush=True)
            gc.collect(2 if seed % _WHOLE == 0 else 0)
            seed += 1
            if seed % 10 == 0:
                told = _pace(world.tally, time.process_time() - cpu)
                print(f"-- up to seed {seed}: {told}", flush=True)
    gc.enable()
    gc.unfreeze()
    print(f"{_pace(world.tally, time.process_time() - cpu)}, {differ} of them differ")
    return 1 if differ else 0


def _pace(tally: Tally, spent: float) -> str:
    """What a run has done, and how many views it made for a second of processor time."""
    return f"{tally}: {tally.counts['views'] / max(spent, 1e-9):.2f} views per CPU second"


def _many(worlds: Worlds, start: int, count: int | None, seconds: float | None) -> int:
    kinds: Counter[str] = Counter()
    began, seed = time.monotonic(), start - start % SHARED
    while (count is None or seed < start + count) and (
        seconds is None or time.monotonic() - began < seconds
    ):
        for found in run(worlds, range(seed, seed + SHARED)):
            kinds["queries"] += 1
            if found is not None:
                what = "an error alone" if isinstance(found.ours, Failure) else "other rows"
                kinds[what] += 1
                print(f"{found}\n", flush=True)
        tables = tables_of(seed)
        worlds.load(tables)
        for one in range(seed, seed + SHARED, 5):
            law = law_of(one, tables)
            kinds["laws"] += 1
            if broken(worlds, law):
                kinds["broken laws"] += 1
                print(f"{told(worlds, law, one, tables)}\n", flush=True)
        if seed % (_FOLLOWED * SHARED) == 0:
            kinds["rounds of subscriptions"] += 1
            for what in followed(worlds, seed):
                kinds["broken subscriptions"] += 1
                print(f"{what}\n", flush=True)
        seed += SHARED
    for what, times in sorted(kinds.items()):
        print(f"{times:8d}  {what}")
    return 1 if set(kinds) - {"queries", "laws", "rounds of subscriptions"} else 0


if __name__ == "__main__":
    sys.exit(main())
