"""So many callers, each asking again as soon as it was answered, for some seconds; whoever is compared takes turns."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter

from contenders import POOL, POSTGRES, Contender
from figures import Case, median, percentile

_STACK = 256 * 1024
_BREATH = 0.1
_READS_A_WRITE = 9

Step = Callable[[int], object]


@dataclass
class Found:
    """What one contender's windows gave: seconds of each operation, and by window the rate, and queries an operation."""

    times: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    queries: list[float] = field(default_factory=list)


def window(step: Step, callers: int, seconds: float) -> tuple[list[float], float]:
    """The seconds of each operation that ended in the window or was under way at its end; and how long it all took."""
    ready = threading.Barrier(callers + 1)
    over = threading.Event()
    times: list[list[float]] = [[] for _ in range(callers)]
    failures: list[BaseException] = []

    def call(number: int, mine: list[float]) -> None:
        ready.wait()
        try:
            while not over.is_set():
                begun = perf_counter()
                step(number)
                mine.append(perf_counter() - begun)
                number += 1
        except BaseException as failure:
            failures.append(failure)
            raise

    # Not all with a write at once: they count on from different numbers.
    threads = [threading.Thread(target=call, args=given) for given in enumerate(times)]
    for thread in threads:
        thread.start()
    ready.wait()
    begun = perf_counter()
    time.sleep(seconds)
    over.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [one for mine in times for one in mine], perf_counter() - begun


def step_of(kind: str, contender: Contender) -> Step:
    """What a caller does as its n-th operation."""
    match kind:
        case "read":
            return lambda _: contender.read()
        case "write":
            return lambda _: contender.write()
        case _:
            return lambda n: contender.read() if n % (_READS_A_WRITE + 1) else contender.write()


def measure(
    kind: str,
    openers: Mapping[str, Callable[[], Contender]],
    callers: int,
    *,
    seconds: float,
    rounds: int,
) -> dict[str, Found]:
    """``rounds`` windows of each contender, after one that does not count."""
    opened = {name: opener() for name, opener in openers.items()}
    found = {name: Found() for name in opened}
    order = list(opened)
    try:
        for number in range(rounds + 1):
            for name in order:
                contender = opened[name]
                before = contender.queries()
                times, took = window(step_of(kind, contender), callers, seconds)
                if number:
                    found[name].times += times
                    found[name].rates.append(len(times) / took)
                    found[name].queries.append((contender.queries() - before) / len(times))
                time.sleep(_BREATH)
            order.append(order.pop(0))
    finally:
        for contender in opened.values():
            contender.close()
    return found


def case(
    letter: str,
    kind: str,
    openers: Mapping[str, Callable[[], Contender]],
    many: list[int],
    *,
    seconds: float,
    rounds: int,
) -> Case:
    """The table of one kind of operation, and its targets."""
    titles = {"read": "Reads", "write": "Writes", "mixed": f"{_READS_A_WRITE} reads to a write"}
    result = Case(letter, titles[kind])
    before = threading.stack_size(_STACK)
    try:
        for callers in many:
            found = measure(kind, openers, callers, seconds=seconds, rounds=rounds)
            _tell(result, callers, found)
    finally:
        threading.stack_size(before)
    if kind == "read":
        _targets(result, max(many), found)
    return result


def _ratio(mine: Found, its: Found) -> float:
    """The median over rounds of the ratio within a round."""
    return median([a / b for a, b in zip(mine.rates, its.rates, strict=True)])


def _tell(result: Case, callers: int, found: Mapping[str, Found]) -> None:
    for name, one in found.items():
        result.row(
            callers=callers,
            who=name,
            operations_a_second=median(one.rates),
            p50_ms=median(one.times) * 1000,
            p95_ms=percentile(one.times, 95) * 1000,
            p99_ms=percentile(one.times, 99) * 1000,
            queries_an_operation=median(one.queries),
            rate_over_the_pool=_ratio(one, found[POOL]),
        )


def _targets(result: Case, callers: int, found: Mapping[str, Found]) -> None:
    mine = found[POSTGRES]
    result.target(
        f"backing queries a read_ts of {callers} callers on PostgreSQL",
        median(mine.queries),
        most=0.02,
    )
    result.target(
        f"rate of read_ts of {callers} callers over the pool's", _ratio(mine, found[POOL]), least=3
    )
