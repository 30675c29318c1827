"""The hooks that a plugin implements (``from mzsql.location import hookimpl``), and the rules by which they change.

Promise: each ``mzsql_open_*`` hook returns `None` where the URL's scheme is not the plugin's. ``url`` is a
`urllib.parse.SplitResult`, so ``file:./env/blob`` has the scheme ``file`` and the path ``./env/blob``. A plugin
registers by an entry point in the group ``mzsql``.

Versions. `HOOKS_VERSION` is one number for all hooks. A plugin may say for which version it was written: ``MZSQL_HOOKS
= 1`` in the module (or object) that its entry point names; without it version 1 is assumed.

- A new hook, or a new argument of a hook, is compatible: a plugin implements the hooks that it wants, with the
  arguments that it names. The version is raised, so that a plugin that needs the new one can say so; a plugin for a
  newer version than this is refused, with what to upgrade, instead of half working.
- A hook or an argument is removed in two steps. For at least one minor release it is deprecated (pluggy's
  ``warn_on_impl``, ``warn_on_impl_args``): plugins that use it work, get a `DeprecationWarning` that names the
  replacement, and are marked by ``mzsql plugins``. The release that removes it raises the version; a plugin that still
  uses it is then not loaded, with an error that names it, while other plugins are.
- The meaning of a hook's result never changes; a new meaning gets a new hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal
from urllib.parse import SplitResult

import msgspec
import pluggy

from mzsql.location.protocols import Blob, Consensus, TimestampOracle
from mzsql.location.urls import shown_url

PROJECT = "mzsql"
HOOKS_VERSION = 1

Kind = Literal["blob", "consensus", "oracle"]

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


class Serves(msgspec.Struct, frozen=True):
    """A kind of backend that a plugin opens, with its URL schemes.

    Args:
        kind: the protocol: blob, consensus or oracle.
        schemes: the URL schemes, lower case: ``("postgres", "postgresql")``.
        form: the form of a URL, for people: ``redis://host:port/db?prefix=…``.
        one_process: whether it lives in one process's memory, so that other processes that open the URL see another
            store.
    """

    kind: Kind
    schemes: tuple[str, ...]
    form: str
    one_process: bool = False


class PluginColumn(msgspec.Struct, frozen=True):
    """A column of a `PluginRelation`; ``type`` is an SQL type in the catalog's spelling: ``text``, ``bigint``, ``text
    list``.
    """

    name: str
    type: str
    nullable: bool = True
    comment: str = ""


class Whereabouts(msgspec.Struct, frozen=True):
    """The URLs of the environment that is read, secrets included: what a plugin's relation may compute its rows from."""

    blob: str
    consensus: str
    oracle: str

    def __repr__(self) -> str:
        places = (self.blob, self.consensus, self.oracle)
        return f"Whereabouts({', '.join(repr(shown_url(url)) for url in places)})"


class PluginRelation(msgspec.Struct, frozen=True):
    """A relation that a plugin adds to the system catalog, for metadata about its backend, not for users' data.

    Args:
        name: its name, lower case, unique in the schema.
        columns: at least one column.
        comment: a description.
        rows: returns the present rows, each with a value for each column: None, bool, int, float, Decimal, str, bytes,
            date, datetime, or a list of them. Called when a query reads the relation; an exception fails that query
            only.
        schema: a schema of the system catalog.
    """

    name: str
    columns: tuple[PluginColumn, ...]
    comment: str
    rows: Callable[[Whereabouts], Iterable[tuple[Any, ...]]]
    schema: str = "mz_internal"


@hookspec
def mzsql_serves() -> list[Serves] | None:
    """What this plugin opens.

    A plugin that implements this is only asked for its own schemes, and a clash between two such plugins is noticed
    without opening either.
    """


@hookspec(firstresult=True)
def mzsql_scratch_url(kind: str, directory: str) -> str | None:
    """A URL below ``directory`` (temporary, absolute) on which the conformance kit for ``kind`` can run without any
    setup.

    `None` where the backend needs a server or credentials: the kit then needs a URL from its user.
    """


@hookspec(firstresult=True)
def mzsql_open_blob(url: SplitResult) -> Blob | None:
    """Open the Blob store at ``url``, creating it where it does not exist."""


@hookspec(firstresult=True)
def mzsql_open_consensus(url: SplitResult) -> Consensus | None:
    """Open the Consensus store at ``url``, creating it where it does not exist."""


@hookspec(firstresult=True)
def mzsql_open_oracle(
    url: SplitResult, timeline: str, now: Callable[[], int]
) -> TimestampOracle | None:
    """Open the oracle of ``timeline`` at ``url``; ``now`` returns the wall clock in milliseconds since the epoch."""


@hookspec
def mzsql_builtin_relations() -> list[PluginRelation] | None:
    """The relations to add to the system catalog."""
