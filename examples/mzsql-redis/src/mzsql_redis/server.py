"""One Redis server: how a URL names it, what it must promise, and which of mzsql's errors its failures are.

Promise: every call ends within ``timeout``, is sent at most once, and fails as `Determinate` (surely not done) or `Indeterminate` (perhaps
done). No message shows a password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import SplitResult, unquote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from mzsql.location import (
    Determinate,
    Indeterminate,
    InvalidUrl,
    UsageError,
    shown_url,
    url_options,
    without_secrets,
)

OPTIONS = ("prefix", "timeout", "durability")
OLDEST = (6, 2)
FORMAT = 1
"""Of the keys and what is in them; kept in ``prefix:format``."""


class Server:
    """Connections to the server at ``url``, and the keys below its prefix.

    Raises:
        InvalidUrl: the URL cannot be made sense of.
        UsageError: the server is too old, may lose what it acknowledged, or holds what a newer version wrote.
        Determinate: it cannot be reached.
    """

    def __init__(self, url: SplitResult) -> None:
        self.url = url
        self.shown = shown_url(url)
        options = url_options(url, OPTIONS)
        self.prefix = options.get("prefix", "mzsql")
        self.timeout = _timeout(self.shown, options.get("timeout", "10"))
        durability = options.get("durability", "required")
        if durability not in ("required", "ignored"):
            raise InvalidUrl(f"{self.shown}: durability is required or ignored")
        self.redis = redis.Redis(
            host=url.hostname or "localhost",
            port=url.port or 6379,
            db=_database(self.shown, url.path),
            username=unquote(url.username) if url.username else None,
            password=unquote(url.password) if url.password else None,
            ssl=url.scheme == "rediss",
            socket_timeout=self.timeout,
            socket_connect_timeout=self.timeout,
            # The client would send again what got no answer, and a compare-and-set that was done would then say that it lost.
            retry=Retry(NoBackoff(), 0),
        )
        self._check(durability)
        self._check_format()

    def _check_format(self) -> None:
        """Mark the prefix with this format, or see that it is one this version knows."""
        name = f"{self.prefix}:format"
        self.run("mark the format", self.redis.setnx, name, FORMAT)
        found = self.run("read the format", self.redis.get, name)
        if found is None or not found.isdigit() or int(found) > FORMAT:
            raise UsageError(
                f"redis {self.shown}: what is below the prefix {self.prefix!r} has format {found!r},"
                f" this version knows {FORMAT}",
                hint="Upgrade mzsql-redis, or choose another prefix.",
            )

    def _check(self, durability: str) -> None:
        info = self.run("ask for the server's version", self.redis.info, "server")
        version = str(info["redis_version"])
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise UsageError(f"redis {self.shown}: version {version} is too old, 6.2 is needed")
        if durability == "ignored":
            return
        wanted = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
        for name, value in wanted.items():
            found = self.run("ask for the settings", self.redis.config_get, name)
            if found.get(name) != value:
                raise UsageError(
                    f"redis {self.shown}: the server may lose acknowledged writes:"
                    f" {name} is {found.get(name)!r}, not {value!r}",
                    hint=f"Start it with --{name} {value}, or add durability=ignored to the URL where data may be lost.",
                )

    def key(self, kind: str, name: str) -> bytes:
        """The Redis key of ``name`` among those of a kind."""
        return f"{self.prefix}:{kind}:{name}".encode("utf-8", "surrogatepass")

    def run(self, act: str, call: Callable[..., Any], *values: Any, **more: Any) -> Any:
        """What ``call(*values, **more)`` answers; ``act`` says what it does, for messages.

        Raises:
            Determinate: it was surely not done: there was no connection, or the server refused.
            Indeterminate: the connection was lost, or no answer came in time; it may have been done.
        """
        try:
            # Connects where need be, and finds out a connection that died while idle: before anything is sent.
            pool = self.redis.connection_pool
            pool.release(pool.get_connection())
        except (redis.RedisError, OSError) as failure:
            raise self._failed(Determinate, act, failure) from None
        try:
            return call(*values, **more)
        except redis.AuthenticationError as failure:
            raise self._failed(Determinate, act, failure) from None
        except (redis.ConnectionError, redis.TimeoutError, OSError) as failure:
            raise self._failed(Indeterminate, act, failure) from None
        except redis.RedisError as failure:
            raise self._failed(Determinate, act, failure) from None

    def _failed(
        self, kind: type[Determinate | Indeterminate], act: str, failure: Exception
    ) -> Determinate | Indeterminate:
        text = without_secrets(str(failure) or type(failure).__name__, self.url)
        return kind(f"redis {self.shown}: cannot {act}: {text}")

    def names(self, kind: str, prefix: str) -> Iterator[str]:
        """Each name of a kind that starts with ``prefix``, once.

        SCAN yields every key that is there from its beginning to its end, perhaps more than once: what it has yielded is remembered.
        """
        start = self.key(kind, "")
        pattern = b"".join(
            b"\\" + bytes([b]) if b in b"*?[]\\" else bytes([b]) for b in self.key(kind, prefix)
        )
        seen: set[bytes] = set()
        cursor, ended = 0, False
        while not ended:
            cursor, found = self.run(
                "list", self.redis.scan, cursor, match=pattern + b"*", count=1000
            )
            for key in found:
                if key not in seen:
                    seen.add(key)
                    yield key.removeprefix(start).decode("utf-8", "surrogatepass")
            ended = cursor == 0

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self.redis.close()


def _timeout(shown: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds < 86_400.0:
        raise InvalidUrl(f"{shown}: timeout is a number of seconds, not {text!r}")
    return seconds


def _database(shown: str, path: str) -> int:
    number = path.strip("/")
    if number and not (number.isascii() and number.isdigit()):
        raise InvalidUrl(f"{shown}: a database of Redis is a number, as in redis://host:6379/0")
    return int(number or 0)
