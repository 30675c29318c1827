"""The hooks a plugin implements, with ``from mzsql.location import hookimpl``.

Promise: each ``mzsql_open_*`` answers `None` where the URL's scheme is not its own. ``url`` is a `urllib.parse.SplitResult`, so
``file:./env/blob`` has the scheme ``file`` and the path ``./env/blob``. A plugin registers by an entry point of the group
``mzsql``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal
from urllib.parse import SplitResult

import msgspec
import pluggy

from mzsql.location.protocols import Blob, Consensus, TimestampOracle

PROJECT = "mzsql"
HOOKS_VERSION = 1

Kind = Literal["blob", "consensus", "oracle"]

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Serves(msgspec.Struct, frozen=True):
    """What a plugin says it opens: one kind of backend, under these schemes.

    Args:
        kind: which protocol.
        schemes: the URL schemes, lower case: ``("postgres", "postgresql")``.
        form: how a URL looks, for a person: ``redis://host:port/db?prefix=…``.
    """

    kind: Kind
    schemes: tuple[str, ...]
    form: str


@hookspec
def mzsql_serves() -> list[Serves] | None:
    """What this plugin opens.

    A plugin that says so is asked for its own schemes only, and the clash of two such is noticed with neither opened.
    """


@hookspec(firstresult=True)
def mzsql_scratch_url(kind: str, directory: str) -> str | None:
    """A URL below ``directory`` (a temporary one, absolute) on which the kit of ``kind`` may run with nothing set up.

    `None` where a backend needs a server or credentials: its kit is then run on a URL somebody gives.
    """


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
