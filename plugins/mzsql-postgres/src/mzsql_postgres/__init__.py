"""mzsql's Consensus and timestamp oracle on PostgreSQL and CockroachDB: ``postgres://user@host/database?schema=…``.

Promise: any number of processes on any machines may share a database, and any number of environments too, each in a schema of its own. A
commit is acknowledged when the server has made it durable. What may stand in the URL is in this distribution's README.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import SplitResult

from mzsql.location import Consensus, Serves, TimestampOracle, hookimpl
from mzsql_postgres.consensus import PostgresConsensus
from mzsql_postgres.options import FORM, SCHEMES, Options, read_options
from mzsql_postgres.oracle import PostgresOracle

__all__ = ["MZSQL_HOOKS", "Options", "PostgresConsensus", "PostgresOracle", "read_options"]

MZSQL_HOOKS = 1


@hookimpl
def mzsql_serves() -> list[Serves]:
    """Consensus and oracle, under three schemes."""
    return [Serves("consensus", SCHEMES, FORM), Serves("oracle", SCHEMES, FORM)]


@hookimpl
def mzsql_open_consensus(url: SplitResult) -> Consensus | None:
    """``postgres://user@host/database?schema=…``."""
    return PostgresConsensus(read_options(url)) if url.scheme in SCHEMES else None


@hookimpl
def mzsql_open_oracle(
    url: SplitResult, timeline: str, now: Callable[[], int]
) -> TimestampOracle | None:
    """``postgres://user@host/database?schema=…``."""
    if url.scheme not in SCHEMES:
        return None
    return PostgresOracle(read_options(url), timeline, now)
