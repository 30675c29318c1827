"""What a process of its own does: ``python children.py WHAT ARGUMENTS`` prints what it found as JSON, on its last line."""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(_ROOT / "bench/persist"), str(_ROOT / "bench/refresh")]

# Found only once the folders are known.
import pyarrow as pa  # noqa: E402
import views  # noqa: E402
from meter import Meter  # noqa: E402

import mzsql.dbapi  # noqa: E402
from mzsql.adapter.coordinator import Coordinator  # noqa: E402
from mzsql.adapter.environment.environment import Environment  # noqa: E402
from mzsql.adapter.environment.locations import locate  # noqa: E402
from mzsql.catalog.builtin import builtins  # noqa: E402

_PATIENCE = 900.0


def make(path: str, number: str) -> dict[str, Any]:
    """Make an environment of so many views."""
    return views.make(Path(path), int(number))


def open_(path: str, number: str) -> dict[str, Any]:
    """Open it, leading: seconds until `connect` has returned, until an answer, until all dataflows are taken up, and what that cost."""
    meter = Meter()
    meter.install()
    # What is imported by the first use is no part of opening: pandas is, by pyarrow.
    pa.scalar(0)
    assert mzsql.dbapi
    wanted, before = int(number), process_time()
    mark, began = meter.mark(), perf_counter()
    con = mzsql.connect(path)
    connected = perf_counter() - began
    con.execute("SELECT 1").fetchall()
    answered = perf_counter() - began
    controller = con.coordinator.dataflows.controller
    while len(controller.installed) < wanted and perf_counter() - began < _PATIENCE:
        time.sleep(0.005)
    controller.settle(_PATIENCE)
    found = {
        "connected": connected,
        "first_answer": answered,
        "taken_up": perf_counter() - began,
        "CPU": process_time() - before,
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000,
    }
    if len(controller.installed) < wanted:
        raise TimeoutError("not all dataflows were taken up")
    phases = {one.name: one.seconds for one in con.coordinator.env.startup.phases()}
    found["optimizing"] = phases["plans"]
    cost = meter.since(mark)
    found["Consensus_writes"] = float(cost.writes + cost.writes_behind)
    found["Consensus_reads"] = float(cost.reads + cost.reads_behind)
    con.close()
    return found


def fill(path: str, number: str) -> dict[str, Any]:
    """Have every plan in the expression cache; nothing is run."""
    env = Environment.open(locate(path))
    coordinator = Coordinator(env, spark=None)
    planner, items = coordinator.planner, env.catalog.state.maintained
    made = {item.id: planner.deploy(item) for item in items}
    outlined = {gid: coordinator.planner.outlined(plan) for gid, plan in made.items()}
    planner.remember_all(outlined, running=frozenset())
    coordinator.close()
    env.close()
    assert len(made) == int(number)
    return {}


def forget(path: str) -> dict[str, Any]:
    """Have the expression cache empty."""
    env = Environment.open(locate(path))
    env.cache.insert_expressions(invalidate_ids=env.catalog.state.items)
    env.close()
    return {}


def counts(path: str) -> dict[str, Any]:
    """Seconds that the first count of each builtin relation takes, and of them those of the processor, all its cores."""
    con = mzsql.connect(path, read_only=True)
    con.execute("SELECT 1").fetchall()
    seconds, cpu = {}, {}
    for relation in builtins().values():
        began, before = perf_counter(), process_time()
        con.execute(f"SELECT count(*) FROM {relation.schema}.{relation.name}").fetchall()
        seconds[relation.full_name] = perf_counter() - began
        cpu[relation.full_name] = process_time() - before
    con.close()
    return {"seconds": seconds, "CPU": cpu}


def lead(path: str) -> dict[str, Any]:
    """Lead and read until fenced: says once that everything is maintained, then at the end how often it read, and what ended that."""
    con = mzsql.connect(path)
    controller = con.coordinator.dataflows.controller
    while not all(one.hydrated for one in controller.status()) or not controller.status():
        time.sleep(0.1)
    print("ready", flush=True)
    reads = 0
    try:
        while True:
            con.execute("SELECT count(*) FROM h0").fetchall()
            reads += 1
    except mzsql.Error as failure:
        return {"reads": reads, "ended": str(failure).splitlines()[0]}


def promote(path: str) -> dict[str, Any]:
    """Wait beside the one that leads until caught up, promote: seconds until that has returned, until a first write is acknowledged, and
    until a view answers that has it.
    """
    began = perf_counter()
    con = mzsql.connect(path, deploy_generation=1)
    env = con.coordinator.env
    while env.preparations.lacking(env.sync(), 1):
        time.sleep(0.05)
    caught_up = perf_counter() - began
    began = perf_counter()
    con.promote()
    promoted = perf_counter() - began
    con.execute("INSERT INTO t0 VALUES (1, 1000000, 'w')")
    written = perf_counter() - began
    con.execute("SET statement_timeout = '5 min'")
    con.execute("SELECT count(*) FROM h0").fetchall()
    read = perf_counter() - began
    con.close()
    return {
        "caught_up": caught_up,
        "promoted": promoted,
        "first_write": written,
        "first_view": read,
    }


_WHAT: dict[str, Callable[..., dict[str, Any]]] = {
    "make": make,
    "open": open_,
    "fill": fill,
    "forget": forget,
    "counts": counts,
    "lead": lead,
    "promote": promote,
}

if __name__ == "__main__":
    print(json.dumps(_WHAT[sys.argv[1]](*sys.argv[2:])))
