"""mzsql's Consensus and timestamp oracle on PostgreSQL and CockroachDB: ``postgres://user@host/database?schema=…``.

Promise: any number of processes on any machines may share a database, and so may any number of environments, each in
its own schema. A commit is acknowledged once the server has made it durable. The URL's options are in this
distribution's README. psycopg, which is slow to import, is imported when the first store is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from mzsql.location import Consensus, Serves, TimestampOracle, hookimpl
from mzsql_postgres.options import FORM, SCHEMES, Options, read_options

if TYPE_CHECKING:
    from mzsql_postgres.consensus import PostgresConsensus
    from mzsql_postgres.oracle import PostgresOracle

__all__ = ["MZSQL_HOOKS", "Options", "PostgresConsensus", "PostgresOracle", "read_options"]

MZSQL_HOOKS = 1

_HOMES = {"PostgresConsensus": "consensus", "PostgresOracle": "oracle"}


def __getattr__(name: str) -> Any:
    """The classes, imported with psycopg on first access."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


@hookimpl
def mzsql_serves() -> list[Serves]:
    """Consensus and oracle, under three schemes."""
    return [Serves("consensus", SCHEMES, FORM), Serves("oracle", SCHEMES, FORM)]


@hookimpl
def mzsql_open_consensus(url: SplitResult) -> Consensus | None:
    """``postgres://user@host/database?schema=…``."""
    if url.scheme not in SCHEMES:
        return None
    made: Consensus = __getattr__("PostgresConsensus")(read_options(url))
    return made


@hookimpl
def mzsql_open_oracle(
    url: SplitResult, timeline: str, now: Callable[[], int]
) -> TimestampOracle | None:
    """``postgres://user@host/database?schema=…``."""
    if url.scheme not in SCHEMES:
        return None
    made: TimestampOracle = __getattr__("PostgresOracle")(read_options(url), timeline, now)
    return made
