"""The hooks a plugin implements, with ``from mzsql.location import hookimpl``.

Promise: each ``mzsql_open_*`` answers `None` where the URL's scheme is not its own. ``url`` is a `urllib.parse.SplitResult`, so
``file:./env/blob`` has the scheme ``file`` and the path ``./env/blob``. A plugin registers by an entry point of the group
``mzsql``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import SplitResult

import pluggy

from mzsql.location.protocols import Blob, Consensus, TimestampOracle

PROJECT = "mzsql"

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec(firstresult=True)
def mzsql_open_blob(url: SplitResult) -> Blob | None:
    """Open the Blob store at ``url``, creating it when it is not there."""


@hookspec(firstresult=True)
def mzsql_open_consensus(url: SplitResult) -> Consensus | None:
    """Open the Consensus store at ``url``, creating it when it is not there."""


@hookspec(firstresult=True)
def mzsql_open_oracle(
    url: SplitResult, timeline: str, now: Callable[[], int]
) -> TimestampOracle | None:
    """Open the oracle of ``timeline`` at ``url``; ``now`` gives the wall clock in milliseconds."""


@hookspec
def mzsql_builtin_relations() -> list[Any] | None:
    """Relations to add to the system catalog, each with the function that yields its rows."""
