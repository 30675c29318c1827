"""What cases run in processes of their own: ``python children.py FILE WHAT ARGUMENTS`` writes its findings to the file, as JSON."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import lineitem
import pyarrow as pa

from mzsql.persist import PersistClient


def _ten(source: str) -> pa.Table:
    batch = next(iter(lineitem.lazily(Path(source), 10, 0)))
    return pa.Table.from_batches([batch]).select(lineitem.schema(Path(source)).names)


def commits(store: str, folder: str, source: str, number: str) -> dict[str, Any]:
    """So many commits of ten rows, for someone who counts system calls."""
    # Other cases do without what mzsql is compared with.
    from stores import STORES  # noqa: PLC0415

    rows = _ten(source)
    opened = STORES[store](Path(folder), rows.schema)
    for _ in range(int(number)):
        opened.commit(opened.prepare(rows))
    opened.close()
    return {}


def listen(folder: str, shard_id: str, ready: str, until: str) -> dict[str, Any]:
    """When each time below ``until`` became visible to a listener."""
    urls = {"blob": f"file:{folder}/blob", "consensus": f"sqlite:{folder}/consensus.db"}
    seen: list[tuple[int, float]] = []
    with PersistClient.open(**urls) as client:
        reader = client.open_reader(shard_id)
        Path(ready).touch()
        for _, frontier in reader.listen(0, timeout=60):
            seen.append((-1 if frontier is None else frontier, perf_counter()))
            if frontier is None or frontier >= int(until):
                break
    return {"seen": seen}


def writer(
    store: str, folder: str, source: str, name: str, ready: str, start: str, seconds: str
) -> dict[str, Any]:
    """Commits of ten rows beside other writers, for some seconds from the moment in the file ``start``, once it is there.

    Finds when each commit began and ended, and what failed.
    """
    from stores import Delta, Shard  # noqa: PLC0415  as above

    rows = _ten(source)
    opened: Any = (
        Shard(Path(folder), rows.schema, name)
        if store == "mzsql.persist"
        else Delta(Path(folder), rows.schema, name)
    )
    done: list[tuple[float, float]] = []
    failures: list[str] = []
    Path(ready).touch()
    while not Path(start).exists():
        time.sleep(0.005)
    begin = float(Path(start).read_text())
    time.sleep(max(0.0, begin - perf_counter()))
    while perf_counter() < begin + float(seconds):
        begun = perf_counter()
        try:
            opened.commit_contended(rows)
        except Exception as failure:
            failures.append(str(failure)[:200])
        else:
            done.append((begun, perf_counter()))
    opened.close()
    return {"done": done, "failures": failures}


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"/proc/self/status has no {name}")


def memory(what: str, folder: str, source: str, rows: str) -> dict[str, Any]:
    """Peak of the resident memory above the start while so many rows are appended, or only read (``drain``)."""
    file = Path(source)
    with PersistClient.open(
        blob=f"file:{folder}/blob", consensus=f"sqlite:{folder}/c.db"
    ) as client:
        write, _ = client.open_shard(client.new_shard_id(), lineitem.schema(file))
        updates = lineitem.lazily(file, int(rows), 5)
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
        start = _memory("VmRSS")
        begun = perf_counter()
        if what == "append":
            write.append(updates, lower=0, upper=10)
        else:
            assert sum(batch.num_rows for batch in updates) == int(rows)
        return {"peak": _memory("VmHWM") - start, "seconds": perf_counter() - begun}


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "commits": commits,
    "listen": listen,
    "writer": writer,
    "memory": memory,
}

if __name__ == "__main__":
    found = TASKS[sys.argv[2]](*sys.argv[3:])
    Path(sys.argv[1]).write_text(json.dumps(found))
