"""mzsql's Blob, Consensus and timestamp oracle on Redis: ``redis://host:port/db?prefix=…``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import SplitResult

from mzsql.location import (
    Blob,
    Consensus,
    PluginColumn,
    PluginRelation,
    Serves,
    TimestampOracle,
    Whereabouts,
    hookimpl,
    shown_url,
    split_url,
)
from mzsql_redis.blob import RedisBlob
from mzsql_redis.consensus import RedisConsensus
from mzsql_redis.oracle import RedisOracle
from mzsql_redis.server import Server

MZSQL_HOOKS = 1
SCHEMES = ("redis", "rediss")


@hookimpl
def mzsql_serves() -> list[Serves]:
    """All three kinds."""
    form = "redis://[user[:password]@]host[:port][/db][?prefix=…&timeout=…&durability=…]"
    return [Serves(kind, SCHEMES, form) for kind in ("blob", "consensus", "oracle")]


@hookimpl
def mzsql_open_blob(url: SplitResult) -> Blob | None:
    """A Blob in string keys."""
    return RedisBlob(Server(url)) if url.scheme in SCHEMES else None


@hookimpl
def mzsql_open_consensus(url: SplitResult) -> Consensus | None:
    """A Consensus in streams."""
    return RedisConsensus(Server(url)) if url.scheme in SCHEMES else None


@hookimpl
def mzsql_open_oracle(
    url: SplitResult, timeline: str, now: Callable[[], int]
) -> TimestampOracle | None:
    """An oracle in a hash."""
    return RedisOracle(Server(url), timeline, now) if url.scheme in SCHEMES else None


@hookimpl
def mzsql_builtin_relations() -> list[PluginRelation]:
    """``mz_internal.mz_redis_servers``: what the servers of the environment say of themselves."""
    columns = (
        PluginColumn("role", "text", nullable=False, comment="blob, consensus or oracle"),
        PluginColumn("url", "text", nullable=False, comment="where it is, without secrets"),
        PluginColumn("version", "text", comment="Redis' version"),
        PluginColumn("used_memory_bytes", "bigint", comment="what the server holds in all"),
    )
    comment = "The Redis servers that the environment is on."
    return [PluginRelation("mz_redis_servers", columns, comment, _servers)]


def _servers(where: Whereabouts) -> Iterator[tuple[Any, ...]]:
    for role in ("blob", "consensus", "oracle"):
        url = split_url(getattr(where, role))
        if url.scheme not in SCHEMES:
            continue
        server = Server(url)
        try:
            info = server.run("ask for the server's state", server.redis.info)
            yield role, shown_url(url), info.get("redis_version"), info.get("used_memory")
        finally:
            server.close()
