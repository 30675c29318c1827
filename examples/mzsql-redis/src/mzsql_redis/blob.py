"""A Blob in string keys ``prefix:b:key``: SET replaces a value at once, and a server that fsyncs always has it on disk when it answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from mzsql.location import UsageError
from mzsql.location.keys import check_blob_key
from mzsql_redis.server import Server

LARGEST = 512 * 1024 * 1024
_KEYS_A_REQUEST = 500


class RedisBlob:
    """A Blob; reads parts of objects (`RangeReadable`) and removes many at once (`ManyDeletable`)."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._redis = server.redis

    def _key(self, key: str) -> bytes:
        return self._server.key("b", check_blob_key(key))

    def get(self, key: str) -> bytes | None:
        """The value of ``key``, or `None`."""
        value: bytes | None = self._server.run(f"read {key!r}", self._redis.get, self._key(key))
        return value

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Up to ``length`` bytes from ``offset``; `None` when there is no such key.

        Raises:
            UsageError: the offset or the length is negative.
        """
        if offset < 0 or length < 0:
            raise UsageError(f"a range cannot be negative, got {offset} and {length}")
        name = self._key(key)
        pipe = self._redis.pipeline(transaction=True)
        pipe.exists(name)
        if length:  # GETRANGE's end is inclusive: it cannot say an empty range
            pipe.getrange(name, offset, offset + length - 1)
        there, *parts = self._server.run(f"read {key!r}", pipe.execute)
        if not there:
            return None
        return bytes(parts[0]) if parts else b""

    def set(self, key: str, value: bytes) -> None:
        """Map ``key`` to ``value``, atomically.

        Raises:
            UsageError: the value is larger than one of Redis can be.
        """
        name = self._key(key)
        if len(value) > LARGEST:
            raise UsageError(
                f"redis {self._server.shown}: {key!r} has {len(value)} bytes, a value of Redis has at most {LARGEST}"
            )
        self._server.run(f"write {key!r}", self._redis.set, name, bytes(value))

    def delete(self, key: str) -> int | None:
        """Remove ``key``; its former size, or `None`."""
        name = self._key(key)
        pipe = self._redis.pipeline(transaction=True)
        pipe.strlen(name)
        pipe.unlink(name)
        size, removed = self._server.run(f"delete {key!r}", pipe.execute)
        return int(size) if removed else None

    def delete_many(self, keys: Sequence[str]) -> None:
        """Remove every key there is."""
        names = iter([self._key(key) for key in keys])
        while some := list(islice(names, _KEYS_A_REQUEST)):
            self._server.run(f"delete {len(some)} keys", self._redis.unlink, *some)

    def list_keys_and_metadata(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Each key that starts with ``prefix``, with its size."""
        found = self._server.names("b", prefix)
        while some := list(islice(found, _KEYS_A_REQUEST)):
            pipe = self._redis.pipeline(transaction=True)
            for key in some:
                name = self._server.key("b", key)
                pipe.exists(name)
                pipe.strlen(name)
            answers = self._server.run("list", pipe.execute)
            for key, there, size in zip(some, answers[::2], answers[1::2], strict=True):
                if there:  # it may have been deleted since SCAN saw it
                    yield key, int(size)

    def close(self) -> None:
        """Close the connections."""
        self._server.close()
