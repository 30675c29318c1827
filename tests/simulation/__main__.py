"""Run the simulation for as long as asked, or one seed again.

python tests/simulation --seconds 600
python tests/simulation --seed 4711 --verbose
python tests/simulation --seed 4711 --shrink
python tests/simulation --seconds 600 --buffered
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator

import msgspec
from simulation_plans import draw_buffered
from simulation_run import Plan, draw, play


def failure_of(plan: Plan) -> str | None:
    """What breaks when the plan is played."""
    try:
        play(plan)
    except Exception as failure:
        return f"{type(failure).__name__}: {failure}"
    return None


def smaller(plan: Plan) -> Iterator[Plan]:
    """The plan with one thing less."""
    replace = msgspec.structs.replace
    for place, process in enumerate(plan.processes):
        others = [*plan.processes[:place], *plan.processes[place + 1 :]]
        named = {other.name for other in others}
        yield replace(
            plan,
            processes=others,
            events=[e for e in plan.events if e.process in named],
        )
        for actor in range(len(process.actors) if len(process.actors) > 1 else 0):
            fewer = [*process.actors[:actor], *process.actors[actor + 1 :]]
            changed = replace(process, actors=fewer)
            yield replace(plan, processes=[changed if p is process else p for p in plan.processes])
        for steps in (process.steps // 2, process.steps - 1):
            if 0 < steps < process.steps:
                changed = replace(process, steps=steps)
                yield replace(
                    plan,
                    processes=[changed if p is process else p for p in plan.processes],
                )
    for place in range(len(plan.events)):
        yield replace(plan, events=[*plan.events[:place], *plan.events[place + 1 :]])
    for kind in plan.faults:
        yield replace(plan, faults=[other for other in plan.faults if other != kind])
    if plan.rate:
        yield replace(plan, rate=0.0)
    if plan.stale:
        yield replace(plan, stale=0.0)


def shrunk(plan: Plan, tries: int = 400) -> Plan:
    """The least plan found that still breaks."""
    found = True
    while found and tries > 0:
        found = False
        for candidate in smaller(plan):
            tries -= 1
            if tries <= 0:
                break
            if failure_of(candidate) is not None:
                plan, found = candidate, True
                break
    return plan


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--plan", help="run this plan alone, as --shrink prints it")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, help="so many seeds")
    parser.add_argument("--seconds", type=float, help="as many seeds as fit into this time")
    parser.add_argument(
        "--buffered", action="store_true", help="with buffered writers and caches of blobs"
    )
    parser.add_argument("--verbose", action="store_true", help="show everything that happens")
    parser.add_argument("--shrink", action="store_true", help="find a smaller plan that fails too")
    options = parser.parse_args()
    logging.disable(logging.CRITICAL)
    alone = options.seed is not None or options.plan is not None
    if alone:
        options.start, options.count = options.seed or 0, 1
    coverage: Counter[str] = Counter()
    began, seed, failed = time.monotonic(), options.start, 0
    while (options.count is None or seed < options.start + options.count) and (
        options.seconds is None or time.monotonic() - began < options.seconds
    ):
        drawn = draw_buffered if options.buffered else draw
        plan = msgspec.json.decode(options.plan, type=Plan) if options.plan else drawn(seed)
        if options.shrink and failure_of(plan) is not None:
            plan = shrunk(plan)
            print(f"the least plan that fails: --plan '{msgspec.json.encode(plan).decode()}'")
        try:
            coverage += play(plan, verbose=options.verbose).coverage
        except Exception as failure:
            failed += 1
            if alone:
                traceback.print_exc()
            print(f"seed {plan.seed}: {type(failure).__name__}: {failure}")
            more = " --buffered" if options.buffered else ""
            command = f".venv/bin/python tests/simulation --seed {plan.seed}{more} --verbose"
            print(f"    again: {command}", flush=True)
        seed += 1
    took = time.monotonic() - began
    done = seed - options.start
    for what, times in sorted(coverage.items()):
        print(f"{times:8d}  {what}")
    print(f"{done} schedules, {done / max(took, 1e-9):.1f} a second, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
