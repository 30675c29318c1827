"""A Consensus in streams ``prefix:c:key``: the entry of sequence number 7 has the stream's id ``7-1``.

A stream is a log already: in order, trimmed from below, and readers may wait for its next entry. The one thing it lacks, appending only
if the newest entry is the expected one, is a script, which Redis runs with nothing in between.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from mzsql.location import Versioned
from mzsql.location.keys import check_limit, check_step, check_truncate
from mzsql_redis.server import Server

_APPEND = """
local newest = redis.call('XREVRANGE', KEYS[1], '+', '-', 'COUNT', 1)
local head = ''
if newest[1] then head = newest[1][1] end
if head ~= ARGV[1] then return 0 end
redis.call('XADD', KEYS[1], ARGV[2], 'd', ARGV[3])
return 1
"""
_LONGEST_BLOCK = 1.0
"""Seconds a waiter lets the server hold its answer: a handle that is closed is let go of within them."""


def _id(seqno: int) -> str:
    return f"{seqno}-1"  # never 0-0, which Redis refuses


def _entry(found: tuple[bytes, dict[bytes, bytes]]) -> Versioned:
    return Versioned(int(found[0].partition(b"-")[0]), found[1][b"d"])


class RedisConsensus:
    """A Consensus whose followers need not poll (`ConsensusWait`)."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._redis = server.redis
        self._append = server.redis.register_script(_APPEND)

    def head(self, key: str) -> Versioned | None:
        """The newest entry, or `None`."""
        name = self._server.key("c", key)
        found = self._server.run(f"read the head of {key!r}", self._redis.xrevrange, name, count=1)
        return _entry(found[0]) if found else None

    def compare_and_set(self, key: str, expected: int | None, new: Versioned) -> bool:
        """Append ``new`` iff the newest seqno is ``expected``."""
        check_step(key, expected, new.seqno)
        name = self._server.key("c", key)
        arguments = ["" if expected is None else _id(expected), _id(new.seqno), bytes(new.data)]
        return bool(
            self._server.run(f"append to {key!r}", self._append, keys=[name], args=arguments)
        )

    def scan(self, key: str, from_seqno: int, limit: int) -> list[Versioned]:
        """At most ``limit`` entries from ``from_seqno`` on."""
        check_limit(limit)
        if limit == 0:  # COUNT 0 answers nothing to some versions and everything to others
            return []
        name, start = self._server.key("c", key), _id(max(0, from_seqno))
        found: list[Any] = self._server.run(
            f"scan {key!r}", self._redis.xrange, name, min=start, count=limit
        )
        return [_entry(one) for one in found]

    def truncate(self, key: str, seqno: int) -> int:
        """Remove the entries below ``seqno``; how many."""
        head = self.head(key)
        # The newest entry only ever becomes newer, so what is checked here still holds when the server trims.
        check_truncate(key, seqno, head.seqno if head else None)
        name, first = self._server.key("c", key), _id(max(0, seqno))
        return int(
            self._server.run(
                f"truncate {key!r}", self._redis.xtrim, name, minid=first, approximate=False
            )
        )

    def list_keys(self) -> Iterator[str]:
        """Every key that has an entry."""
        return self._server.names("c", "")

    def wait(self, key: str, after_seqno: int, timeout: float) -> bool:
        """Block until there is an entry beyond ``after_seqno``, or ``timeout`` seconds."""
        name, after = self._server.key("c", key), _id(after_seqno) if after_seqno >= 0 else "0-0"
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            longest = min(left, _LONGEST_BLOCK, self._server.timeout / 2)
            # BLOCK 0 would wait for ever.
            block = max(1, int(longest * 1000))
            found = self._server.run(
                f"wait for {key!r}", self._redis.xread, {name: after}, count=1, block=block
            )
            if found or left <= longest:
                return bool(found)

    def close(self) -> None:
        """Close the connections."""
        self._server.close()
