"""Cases of shards on the backends: what commits and idling ask of them and cost, and how soon another process knows of a commit."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from children import ROWS, Commits
from figures import Case, median, pauses, percentile, shown
from s3_proxy import S3Proxy
from servers import Bare, prefix, schema, with_options

from mzsql.location import Versioned, open_consensus
from mzsql.persist import PersistClient
from mzsql.persist.cost import Prices

CHILDREN = Path(__file__).parent / "children.py"
COMMITS = 1000
_STATISTICS_SECONDS = 11.0
"""After which PostgreSQL's statistics tell of what a connection has done that has gone quiet (PGSTAT_IDLE_INTERVAL, and a second)."""
_GETS = ("GetObject", "HeadObject")


class Child:
    """A process of the benchmark that stops at points (see `children`)."""

    def __init__(self, folder: Path, what: str, *arguments: str) -> None:
        self._out = folder / f"{what}-{len(list(folder.iterdir()))}.json"
        self._process = subprocess.Popen(
            [sys.executable, str(CHILDREN), str(self._out), what, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def at(self, point: str) -> None:
        """Wait until it has come there."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip() == f"reached {point}":
                return
        raise SystemExit(f"a process of the benchmark ended early: {self._process.args}")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def found(self) -> Any:
        if self._process.wait() != 0:
            raise SystemExit(f"a process of the benchmark failed: {self._process.args}")
        return json.loads(self._out.read_text())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


class Servers:
    """What the servers themselves saw: requests through a proxy before S3, transactions in PostgreSQL's statistics."""

    def __init__(self, proxy: S3Proxy, bare: Bare) -> None:
        self._proxy = proxy
        self._bare = bare

    def look(self) -> tuple[int, int]:
        time.sleep(_STATISTICS_SECONDS)
        transactions = self._bare.value(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        )
        return sum(self._proxy.counts.values()), transactions


@contextmanager
def _proxied(s3_url: str) -> Iterator[tuple[S3Proxy, str]]:
    """A proxy before the endpoint, and the URL of a fresh prefix by way of it."""
    endpoint = parse_qs(urlsplit(s3_url).query).get("endpoint")
    if not endpoint:
        raise SystemExit("case d counts requests by a proxy: it needs an endpoint in the S3 URL")
    with prefix(s3_url) as below, S3Proxy(endpoint[0]) as proxy:
        yield proxy, with_options(below, endpoint=proxy.endpoint)


def usd(requests: Counter[str], prices: Prices) -> float:
    """Dollars for requests of S3, as `mzsql.persist.cost` has them: a DELETE like a PUT, though S3 bills none."""
    return sum(number * _price(name, prices) for name, number in requests.items())


def _price(name: str, prices: Prices) -> float:
    server, _, operation = name.partition(" ")
    if server != "S3":
        return 0.0
    return prices.get if operation in _GETS else prices.put


def _watched(child: Child, servers: Servers) -> tuple[Any, int, int]:
    """What the child found, and what the servers saw between its two points."""
    with child:
        child.at("begin")
        before = servers.look()
        child.go()
        child.at("end")
        after = servers.look()
        child.go()
        found = child.found()
    return found, after[0] - before[0], after[1] - before[1]


def costs(s3_url: str, postgres_url: str, folder: Path, *, quick: bool) -> Case:
    """Case d."""
    case = Case("d", f"requests and dollars of {COMMITS:,} commits of {ROWS} rows, and of idling")
    number = COMMITS // 5 if quick else COMMITS
    warm, seconds = (30, 30) if quick else (90, 120)
    prices = Prices()
    with ExitStack() as stack:
        bare = Bare(postgres_url)
        stack.callback(bare.close)
        proxy, blob = stack.enter_context(_proxied(s3_url))
        servers = Servers(proxy, bare)
        one, other = (stack.enter_context(schema(postgres_url)) for _ in range(2))
        busy = _watched(Child(folder, "commits", blob, one, str(number)), servers)
        arguments = (_below(blob, "idle"), other, str(warm), str(seconds))
        idle = _watched(Child(folder, "idle", *arguments), servers)
    _table(case, busy[0], idle[0], number, prices)
    _notes(case, busy, idle, number)
    return case


def _below(url: str, part: str) -> str:
    before, question, options = url.partition("?")
    return f"{before}/{part}{question}{options}"


def _table(case: Case, busy: Any, idle: Any, number: int, prices: Prices) -> None:
    made, idled = Counter(busy["requests"]), Counter(idle["requests"])
    scale, hour = COMMITS / number, 3600 / idle["seconds"]
    for name in sorted(made.keys() | idled.keys()):
        case.row(
            request=name,
            **{f"per {COMMITS:,} commits": made[name] * scale},
            usd=made[name] * scale * _price(name, prices),
            per_idle_second=idled[name] / idle["seconds"],
            per_idle_hour=idled[name] * hour,
            usd_per_idle_hour=idled[name] * hour * _price(name, prices),
        )
    case.row(
        request="all",
        **{f"per {COMMITS:,} commits": made.total() * scale},
        usd=usd(made, prices) * scale,
        per_idle_second=idled.total() / idle["seconds"],
        per_idle_hour=idled.total() * hour,
        usd_per_idle_hour=usd(idled, prices) * hour,
    )
    case.target("idle requests a second", idled.total() / idle["seconds"], most=0.2)


def _notes(case: Case, busy: Any, idle: Any, number: int) -> None:
    for what, (found, s3, transactions) in (("commits", busy), ("idling", idle)):
        counts = Counter(found["requests"])
        told = {
            server: sum(n for name, n in counts.items() if name.startswith(server))
            for server in ("S3", "PostgreSQL")
        }
        case.notes.append(
            f"{what.capitalize()} for {shown(float(found['seconds']))} s: the plugins counted {told['S3']} requests and "
            f"{told['PostgreSQL']} statements; a proxy before S3 saw {s3} requests, PostgreSQL {transactions} transactions (those of "
            "connecting and of looking among them). Spark's own processes are seen there and not in the plugins' counters."
        )
    rate = number / busy[0]["seconds"]
    case.notes.append(
        f"{shown(float(rate))} commits/s, one after the other, by way of the proxy; maintenance in the background until it was done. "
        "PostgreSQL is billed by the hour: its statements cost nothing each. S3's prices are those of `mzsql.persist.cost`."
    )


_INSERT = "INSERT INTO {schema}.bare (shard, sequence_number, data) VALUES ('s', %s, %s)"


def wakes(postgres_url: str, folder: Path, *, quick: bool) -> Case:
    """Case e."""
    number = 60 if quick else 500
    case = Case("e", f"from the call in one process to another process's knowing, {number} times")
    channel, key = "mzsql_bench", "s-wake"
    sent: dict[str, dict[int, tuple[float, float]]] = {"append": {}, "set": {}, "bare": {}}
    with ExitStack() as stack:
        url = stack.enter_context(schema(postgres_url))
        home = folder / "wakes"
        home.mkdir()
        bare = Bare(url)
        stack.callback(bare.close)
        opened: Any = open_consensus(url)
        stack.callback(opened.close)
        blob = f"file:{home}/blob"
        client = stack.enter_context(PersistClient.open(blob=blob, consensus=url))
        shard = Commits(client, client.new_shard_id())
        shard.commit()
        opened.compare_and_set(key, None, Versioned(0, b"x" * 100))
        bare.execute(bare.text("CREATE TABLE {schema}.bare (LIKE {consensus} INCLUDING ALL)"))
        last = number + shard.at
        children = [
            Child(home, "listen", blob, url, shard.writer.shard_id, str(last)),
            Child(home, "wait", url, key, str(number)),
            Child(home, "notified", url, channel, str(number)),
        ]
        for child in children:
            stack.enter_context(child)
            child.at("begin")
        for child in children:
            child.go()
        time.sleep(1.0)
        insert = bare.text(_INSERT)

        def append(_: int) -> int:
            shard.commit()
            return shard.at - 1

        def compare_and_set(one: int) -> int:
            assert opened.compare_and_set(key, one - 1, Versioned(one, b"x" * 100))
            return one

        def notify(one: int) -> int:
            bare.execute(insert, (one, b"x" * 100), prepare=True)
            bare.execute("SELECT pg_notify(%s, %s)", (channel, str(one)), prepare=True)
            return one

        acts = {"append": append, "set": compare_and_set, "bare": notify}
        order = list(acts)
        breaks = iter(pauses(number * len(acts), 0.005, 0.015))
        for one in range(1, number + 1):
            for name in order:
                time.sleep(next(breaks))
                begun = perf_counter()
                what = acts[name](one)
                sent[name][what] = (begun, perf_counter())
            order.append(order.pop(0))
        found = [child.found() for child in children]
    _latencies(case, sent, found, number)
    return case


def _latencies(case: Case, sent: Any, found: list[Any], number: int) -> None:
    latencies: dict[str, list[float]] = {}
    after: dict[str, list[float]] = {}
    for name, one in zip(sent, found, strict=True):
        first = min(sent[name])
        latencies[name], after[name] = [], []
        for upto, when in one["seen"]:
            for number_ in range(first, upto + 1):
                latencies[name].append(when - sent[name][number_][0])
                after[name].append(when - sent[name][number_][1])
            first = max(first, upto + 1)
        if len(latencies[name]) != number:
            raise SystemExit(f"{len(latencies[name])} of {number} wakes of {name} were seen")
    shown_as = {
        "append": "compare_and_append to a shard; listen",
        "set": "compare_and_set of 100 B; wait",
        "bare": "psycopg: INSERT, then pg_notify; notifies()",
    }
    for name, what in shown_as.items():
        case.row(
            what=what,
            p50_ms=median(latencies[name]) * 1000,
            p99_ms=percentile(latencies[name], 99) * 1000,
            longest_ms=max(latencies[name], default=math.nan) * 1000,
            p50_ms_after_the_call_returned=median(after[name]) * 1000,
            p50_over_psycopg=median(latencies[name]) / median(latencies["bare"]),
        )
    requests = Counter(found[0]["requests"])
    told = ", ".join(f"{name} {n * 1000 / number:.0f}" for name, n in sorted(requests.items()))
    case.notes.append(f"Statements of the listener for 1,000 appends: {told or 'none'}.")
    case.target("append to listener, p50 ms", median(latencies["append"]) * 1000, most=10)
