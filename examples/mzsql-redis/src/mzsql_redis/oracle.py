"""A timestamp oracle in the hash ``prefix:o:timeline``, its two timestamps as decimal text.

Lua's numbers are doubles, which hold no timestamp beyond 2**53 exactly: the scripts compare text (shorter, or else less, is less) and leave
adding to HINCRBY.
"""

from __future__ import annotations

from collections.abc import Callable

from mzsql.location import MAX_SEQNO, Determinate
from mzsql.location.keys import check_ts
from mzsql_redis.server import Server

_LAST = MAX_SEQNO - 1
_LESS = "local function less(a, b) return #a < #b or (#a == #b and a < b) end\n"
_ALLOCATE = (
    _LESS
    + """
local write = redis.call('HGET', KEYS[1], 'write')
if not write then return 'gone' end
if not less(write, ARGV[2]) then return 'full' end
if less(write, ARGV[1]) then
    redis.call('HSET', KEYS[1], 'write', ARGV[1])
else
    redis.call('HINCRBY', KEYS[1], 'write', 1)
end
return redis.call('HGET', KEYS[1], 'write')
"""
)
_APPLY = (
    _LESS
    + """
local now = redis.call('HMGET', KEYS[1], 'read', 'write')
if not now[1] or not now[2] then return 'gone' end
if less(now[2], ARGV[1]) then
    redis.call('HSET', KEYS[1], 'read', ARGV[1], 'write', ARGV[1])
elseif less(now[1], ARGV[1]) then
    redis.call('HSET', KEYS[1], 'read', ARGV[1])
end
return 'done'
"""
)


class RedisOracle:
    """A timestamp oracle.

    Args:
        server: where it is.
        timeline: its timeline.
        now: the wall clock in milliseconds.
    """

    def __init__(self, server: Server, timeline: str, now: Callable[[], int]) -> None:
        self._server = server
        self._timeline = timeline
        self._now = now
        self._key = server.key("o", timeline)
        self._allocate = server.redis.register_script(_ALLOCATE)
        self._apply = server.redis.register_script(_APPLY)
        pipe = server.redis.pipeline(transaction=True)
        pipe.hsetnx(self._key, "read", "0")
        pipe.hsetnx(self._key, "write", "0")
        server.run(f"open timeline {timeline!r}", pipe.execute)

    def write_ts(self) -> int:
        """Allocate a timestamp above all others and not below the clock."""
        arguments = [min(max(0, self._now()), _LAST), _LAST]
        return self._answered(
            self._server.run(
                "allocate a write timestamp", self._allocate, keys=[self._key], args=arguments
            )
        )

    def peek_write_ts(self) -> int:
        """The most recently allocated timestamp."""
        return self._read("write")

    def read_ts(self) -> int:
        """The read timestamp."""
        return self._read("read")

    def _read(self, field: str) -> int:
        hget = self._server.redis.hget
        return self._answered(
            self._server.run(f"read the {field} timestamp", hget, self._key, field)
        )

    def apply_write(self, ts: int) -> None:
        """Both timestamps become at least ``ts``."""
        check_ts(ts)
        self._answered(self._server.run("apply a write", self._apply, keys=[self._key], args=[ts]))

    def _answered(self, answer: bytes | None) -> int:
        if answer in (b"gone", None):
            raise Determinate(
                f"redis {self._server.shown}: timeline {self._timeline!r} is gone from the server"
            )
        if answer == b"full":
            raise Determinate(f"timeline {self._timeline!r} has no timestamps left")
        return 0 if answer in (b"done", None) else int(answer)

    def close(self) -> None:
        """Close the connections."""
        self._server.close()
