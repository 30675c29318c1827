"""Sessions of one process that run statements as fast as they can, each on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from mzsql.adapter.coordinator import Coordinator
from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.session.session import Session
from mzsql.compute.engines.spark_session import local_session

#: From a session's number and a statement's to its text.
Text = Callable[[int, int], str]


class Rate(msgspec.Struct, frozen=True):
    """How sessions did.

    Attributes:
        sessions: how many.
        per_second: statements of all sessions in a second.
        p50, p95, p99: of a statement, in milliseconds.
    """

    sessions: int
    per_second: float
    p50: float
    p95: float
    p99: float


class Line(msgspec.Struct, frozen=True):
    """One line of the figure: what one kind of statement did with one oracle."""

    statement: str
    oracle: str
    rates: tuple[Rate, ...]


@contextmanager
def environment(directory: Path, *, with_spark: bool) -> Iterator[Coordinator]:
    """An environment of files and SQLite with a coordinator."""
    env = Environment.open(locate(directory))
    try:
        coordinator = Coordinator(
            env, spark=(lambda: local_session(cores=2)) if with_spark else None
        )
        try:
            yield coordinator
        finally:
            coordinator.close()
    finally:
        env.close()


def measured(coordinator: Coordinator, text: Text, sessions: int, seconds: float) -> Rate:
    """Have ``sessions`` sessions run statements for ``seconds`` seconds, after a tenth of that to warm up."""
    took: list[list[float]] = [[] for _ in range(sessions)]
    failures: list[BaseException] = []
    ready = threading.Barrier(sessions + 1)
    warm = seconds / 10

    def work(number: int) -> None:
        session = Session()
        try:
            ready.wait()
            began = time.perf_counter()
            statement = 0
            while (at := time.perf_counter() - began) < warm + seconds:
                coordinator.execute(session, text(number, statement))
                statement += 1
                if at >= warm:
                    took[number].append(time.perf_counter() - began - at)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(sessions)]
    for thread in threads:
        thread.start()
    ready.wait()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    every = sorted(one for some in took for one in some)

    def percentile(share: float) -> float:
        return every[min(len(every) - 1, int(len(every) * share))] * 1000

    return Rate(sessions, len(every) / seconds, percentile(0.5), percentile(0.95), percentile(0.99))
