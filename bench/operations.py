"""What one transaction asks of Consensus and Blob, by kind and by whom, with many materialized views.

    python bench/operations.py                  # 3 and 30 views
    python bench/operations.py --views 3,300 --rounds 20

There are as many views over a table `orders`, none over `other`. A round inserts a row into one of the two and reads one of the views;
counts are medians over the rounds. `path` is whatever the statements, the group commit and the steps ask, `behind` what is made durable or
compacted afterwards, on threads of its own. Steps run in process, so no JVM is started.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from time import perf_counter, process_time
from typing import Any, TypeVar

import mzsql
from mzsql.adapter.environment import opening
from mzsql.location import blob_around, consensus_around, open_blob, open_consensus

T = TypeVar("T")

_BEHIND = ("-flush-", "maintenance", "follow")
_KINDS = ("compare_and_set", "scan", "wait", "get", "set")


class Counting:
    """Opens backends as the registry does, and counts what is asked of them."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    def _act(self, operation: str, act: Callable[[], T]) -> T:
        name = threading.current_thread().name
        self.counts["behind" if any(one in name for one in _BEHIND) else "path", operation] += 1
        return act()

    def open_blob(self, url: str) -> Any:
        return blob_around(open_blob(url), self._act)

    def open_consensus(self, url: str) -> Any:
        return consensus_around(open_consensus(url), self._act)


def prepare(connection: mzsql.Connection, views: int) -> None:
    for statement in (
        "ALTER SYSTEM SET step_engine = 'duckdb'",
        "CREATE TABLE orders (id bigint, customer bigint, amount bigint)",
        "CREATE TABLE other (id bigint, customer bigint, amount bigint)",
        "INSERT INTO orders VALUES (0, 0, 0)",
        "INSERT INTO other VALUES (0, 0, 0)",
    ):
        connection.execute(statement)
    for i in range(views):
        connection.execute(
            f"CREATE MATERIALIZED VIEW v{i} AS"
            f" SELECT customer, sum(amount) + {i} AS total FROM orders GROUP BY customer"
        )
    for i in range(views):
        connection.execute(f"SELECT count(*) FROM v{i}").fetchall()


def bench(connection: mzsql.Connection, counting: Counting, table: str, rounds: int) -> list[str]:
    seen: list[Counter[tuple[str, str]]] = []
    cpu, wall = [], []
    for number in range(rounds):
        counting.counts.clear()
        used, begun = process_time(), perf_counter()
        connection.execute(f"INSERT INTO {table} VALUES ({number}, 1, 2)")
        connection.execute("SELECT * FROM v0").fetchall()
        wall.append(perf_counter() - begun)
        cpu.append(process_time() - used)
        seen.append(Counter(counting.counts))
    shown = [
        f"{statistics.median(one['path', kind] for one in seen):g}"
        f" + {statistics.median(one['behind', kind] for one in seen):g}"
        for kind in _KINDS
    ]
    return [
        *shown,
        f"{statistics.median(cpu) * 1000:.0f}",
        f"{statistics.median(wall) * 1000:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--views", default="3,30")
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    counting = Counting()
    opening.default_registry = lambda: counting  # type: ignore[attr-defined,assignment]
    print("path + behind\n")
    print(f"| views | insert into | {' | '.join(_KINDS)} | cpu ms | ms |")
    print(f"| ---: | --- | {'---: | ' * len(_KINDS)}---: | ---: |")
    for views in map(int, given.views.split(",")):
        with (
            tempfile.TemporaryDirectory(prefix="mzsql-bench-") as folder,
            mzsql.connect(f"{folder}/env") as connection,
        ):
            prepare(connection, views)
            for table in ("other", "orders"):
                found = bench(connection, counting, table, given.rounds)
                print(f"| {views} | {table} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
