"""What cases run in processes of their own: ``python children.py FILE WHAT ARGUMENTS`` writes its findings to the file, as JSON.

A child that reaches a point where the parent is to look at the servers prints its name and goes on when it gets a line.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
from prometheus_client import REGISTRY
from psycopg import sql

from mzsql.persist import PersistClient

ROWS = 10
_QUIET_SECONDS = 3.0
_SETTLE_SECONDS = 60.0
_HISTORY = 20
_WARM = 100
_SERIES = {"mzsql_s3_requests_total": "S3", "mzsql_postgres_statements_total": "PostgreSQL"}

SCHEMA = pa.schema(
    [("id", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("at", pa.int64())]
)


def updates(at: int) -> pa.Table:
    """The ten rows of a commit."""
    ids = [at * ROWS + number for number in range(ROWS)]
    columns = [ids, [f"customer {one}" for one in ids], [one / 7 for one in ids], [at] * ROWS]
    rows = pa.table(columns, schema=SCHEMA)
    for name, value in (("mz_time", at), ("mz_diff", 1)):
        rows = rows.append_column(name, pa.array([value] * ROWS, pa.int64()))
    return rows


def counted() -> Counter[str]:
    """Requests sent so far by this process, by server and operation, as the plugins count them."""
    found: Counter[str] = Counter()
    for metric in REGISTRY.collect():
        for sample in metric.samples:
            if sample.name in _SERIES:
                name = f"{_SERIES[sample.name]} {sample.labels['operation']}"
                found[name] += round(sample.value)
    return found


def reached(point: str) -> tuple[Counter[str], float]:
    """Let the parent look; what was counted, and when, as it lets this go on."""
    print(f"reached {point}", flush=True)
    sys.stdin.readline()
    return counted(), perf_counter()


def settle() -> None:
    """Wait until no requests have been sent for a while. That is seen in the counters, and so sends none."""
    last, since, end = counted(), perf_counter(), perf_counter() + _SETTLE_SECONDS
    while perf_counter() - since < _QUIET_SECONDS and perf_counter() < end:
        time.sleep(0.1)
        if (now := counted()) != last:
            last, since = now, perf_counter()


class Commits:
    """A shard that is committed to, with a reader that gives up history."""

    def __init__(self, client: PersistClient, shard_id: str) -> None:
        self.writer, self.reader = client.open_shard(shard_id, SCHEMA)
        self.at = 1

    def commit(self) -> None:
        at = self.at
        self.writer.compare_and_append(
            updates(at), expected_upper=0 if at == 1 else at, new_upper=at + 1
        )
        self.at += 1
        if at % _HISTORY == 0:
            self.reader.downgrade_since(at)


def commits(blob: str, consensus: str, number: str) -> dict[str, Any]:
    """So many commits, and the maintenance that they make due."""
    with PersistClient.open(blob=blob, consensus=consensus) as client:
        shard = Commits(client, client.new_shard_id())
        for _ in range(_WARM):
            shard.commit()
        settle()
        before, begun = reached("begin")
        for _ in range(int(number)):
            shard.commit()
        took = perf_counter() - begun
        settle()
        after, _ = reached("end")
    return {"requests": dict(after - before), "seconds": took}


def idle(blob: str, consensus: str, warm: str, seconds: str) -> dict[str, Any]:
    """An environment with a table and a materialized view, of which nobody asks anything."""
    import mzsql  # noqa: PLC0415  Spark is for this child only

    with mzsql.connect(blob=blob, consensus=consensus) as connection:
        connection.execute("CREATE TABLE orders (id int NOT NULL, customer text, amount int)")
        connection.execute(
            "CREATE MATERIALIZED VIEW totals AS SELECT customer, sum(amount) AS amount FROM orders GROUP BY customer"
        )
        connection.execute("INSERT INTO orders VALUES (1, 'a', 10), (2, 'a', 5), (3, 'b', 7)")
        connection.execute("SET statement_timeout = '600s'")
        rows = connection.execute("SELECT customer, amount FROM totals ORDER BY 1").fetchall()
        assert [(one, int(amount)) for one, amount in rows] == [("a", 15), ("b", 7)], rows
        time.sleep(float(warm))
        before, begun = reached("begin")
        time.sleep(float(seconds))
        after, ended = reached("end")
    return {"requests": dict(after - before), "seconds": ended - begun}


def listen(blob: str, consensus: str, shard_id: str, until: str) -> dict[str, Any]:
    """When a listener of a shard had the updates of each time below ``until``; the requests it sent meanwhile."""
    seen: list[tuple[int, float]] = []
    with PersistClient.open(blob=blob, consensus=consensus) as client:
        reader = client.open_reader(shard_id)
        following = reader.listen(0, timeout=60)
        next(following)
        before, _ = reached("begin")
        for _, frontier in following:
            assert frontier is not None
            seen.append((frontier - 1, perf_counter()))
            if frontier >= int(until):
                break
        return {"seen": seen, "requests": dict(counted() - before)}


def wait(consensus: str, key: str, until: str) -> dict[str, Any]:
    """When a waiter for a key of the Consensus learned of each entry up to ``until``."""
    from mzsql.location import open_consensus  # noqa: PLC0415  psycopg alone is measured without

    opened: Any = open_consensus(consensus)
    seen: list[tuple[int, float]] = []
    at = 0
    reached("begin")
    while at < int(until):
        if opened.wait(key, at, 60.0):
            woken = perf_counter()
            at = opened.head(key).seqno
            seen.append((at, woken))
    opened.close()
    return {"seen": seen}


def notified(url: str, channel: str, until: str) -> dict[str, Any]:
    """When psycopg alone was notified of each number up to ``until``."""
    from mzsql_postgres import read_options  # noqa: PLC0415  for this child only

    seen: list[tuple[int, float]] = []
    with read_options(urlsplit(url)).connect(30) as connection:
        connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        reached("begin")
        for notification in connection.notifies(timeout=120):
            seen.append((int(notification.payload), perf_counter()))
            if seen[-1][0] >= int(until):
                break
    return {"seen": seen}


TASKS: dict[str, Callable[..., dict[str, Any]]] = {
    "commits": commits,
    "idle": idle,
    "listen": listen,
    "wait": wait,
    "notified": notified,
}

if __name__ == "__main__":
    findings = TASKS[sys.argv[2]](*sys.argv[3:])
    Path(sys.argv[1]).write_text(json.dumps(findings))
