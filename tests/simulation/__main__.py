"""Run the simulation for as long as asked, or one seed again.

python tests/simulation --seconds 600
python tests/simulation --seed 4711 --verbose
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter

from simulation_run import draw, play


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, help="so many seeds")
    parser.add_argument("--seconds", type=float, help="as many seeds as fit into this time")
    parser.add_argument("--verbose", action="store_true", help="show everything that happens")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    if options.seed is not None:
        options.start, options.count = options.seed, 1
    coverage: Counter[str] = Counter()
    began, seed, failed = time.monotonic(), options.start, []
    while True:
        if options.count is not None and seed >= options.start + options.count:
            break
        if options.seconds is not None and time.monotonic() - began >= options.seconds:
            break
        try:
            world = play(draw(seed), verbose=options.verbose)
            coverage += world.coverage
        except Exception as failure:
            failed.append(seed)
            if options.seed is not None:
                traceback.print_exc()
            print(f"seed {seed}: {type(failure).__name__}: {failure}", flush=True)
            print(
                f"    again: .venv/bin/python tests/simulation --seed {seed} --verbose", flush=True
            )
        seed += 1
    took = time.monotonic() - began
    done = seed - options.start
    for what, times in sorted(coverage.items()):
        print(f"{times:8d}  {what}")
    print(
        f"{done} schedules in {took:.1f} s, {done / max(took, 1e-9):.1f} a second; {len(failed)} failed"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
