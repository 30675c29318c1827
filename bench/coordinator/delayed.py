"""SQLite further away: the scheme ``delayed``, whose every operation takes some milliseconds more, as a plugin would serve it.

``delayed:/path/consensus.db?ms=5`` is ``sqlite:/path/consensus.db`` with 5 ms before each operation. Waiting to be told is not delayed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar
from urllib.parse import SplitResult, parse_qs

from mzsql.location import (
    Consensus,
    TimestampOracle,
    consensus_around,
    default_registry,
    hookimpl,
    open_consensus,
    open_oracle,
)

T = TypeVar("T")

SCHEME = "delayed"


def url(path: str, milliseconds: float) -> str:
    """The URL of a database at ``path``, an absolute one, that is so far away; plain SQLite where that is nothing."""
    return f"{SCHEME}:{path}?ms={milliseconds:g}" if milliseconds else f"sqlite:{path}"


def _split(found: SplitResult) -> tuple[str, float]:
    return f"sqlite:{found.path}", float(parse_qs(found.query)["ms"][0]) / 1000


class _Oracle:
    def __init__(self, inner: TimestampOracle, seconds: float) -> None:
        self._inner = inner
        self._seconds = seconds

    def _late(self, act: Callable[[], T]) -> T:
        time.sleep(self._seconds)
        return act()

    def write_ts(self) -> int:
        return self._late(self._inner.write_ts)

    def peek_write_ts(self) -> int:
        return self._late(self._inner.peek_write_ts)

    def read_ts(self) -> int:
        return self._late(self._inner.read_ts)

    def apply_write(self, ts: int) -> None:
        self._late(lambda: self._inner.apply_write(ts))

    def close(self) -> None:
        self._inner.close()


class _Plugin:
    @hookimpl
    def mzsql_open_consensus(self, url: SplitResult) -> Consensus | None:
        if url.scheme != SCHEME:
            return None
        inner, seconds = _split(url)

        def around(operation: str, act: Callable[[], T]) -> T:
            if operation != "wait":
                time.sleep(seconds)
            return act()

        return consensus_around(open_consensus(inner), around)

    @hookimpl
    def mzsql_open_oracle(
        self, url: SplitResult, timeline: str, now: Callable[[], int]
    ) -> TimestampOracle | None:
        if url.scheme != SCHEME:
            return None
        inner, seconds = _split(url)
        return _Oracle(open_oracle(inner, timeline, now), seconds)


default_registry().register("delayed", _Plugin())
