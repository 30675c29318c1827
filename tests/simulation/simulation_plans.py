"""Plans of schedules in which processes write through buffers and read through caches of blobs."""

from __future__ import annotations

import random

from simulation_run import Plan, draw

_CACHES = ("", "memory", "own", "shared", "shared")


def draw_buffered(seed: int) -> Plan:
    """The plan of the seed with buffered writers, in most of which the first shard has no other one, and with caches."""
    rng = random.Random(f"{seed}/buffered")
    plan = draw(seed)
    alone = rng.random() < 0.6
    for number, process in enumerate(plan.processes):
        process.cache = rng.choice(_CACHES)
        if process.actors == ["finalizer"]:
            continue
        if alone:
            writes = {"appender", "batcher", "definite"}
            process.actors = [
                rng.choice(("reader", "listener")) if actor in writes else actor
                for actor in process.actors
            ]
        if number == 0 or (not alone and rng.random() < 0.4):
            process.actors.insert(0, "buffering")
            process.steps += rng.randint(4, 16)
    return plan
