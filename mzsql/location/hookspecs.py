"""The hooks a plugin implements, with ``from mzsql.location import hookimpl``, and the rules by which they change.

Promise: each ``mzsql_open_*`` answers `None` where the URL's scheme is not its own. ``url`` is a `urllib.parse.SplitResult`, so
``file:./env/blob`` has the scheme ``file`` and the path ``./env/blob``. A plugin registers by an entry point of the group
``mzsql``.

Versions. `HOOKS_VERSION` is one number for all hooks here. A plugin may say which it was written for: ``MZSQL_HOOKS = 1`` in the
module (or object) its entry point names; one that does not is taken for version 1.

- A new hook, or a new argument of one, is compatible: a plugin implements the hooks it wants and takes the arguments it names. The
  version goes up, so that a plugin that needs the new thing can say so: one that says a newer version than this is refused, with
  what to upgrade, instead of half working.
- A hook or an argument is removed in two steps. For at least one minor release it is deprecated (pluggy's ``warn_on_impl``,
  ``warn_on_impl_args``): plugins that use it work, with a `DeprecationWarning` that says what to use instead, and are shown by ``mzsql
  plugins``; others hear nothing. The release that removes it raises the version, and a plugin that still has it is not loaded, by name of
  what it has, while the others are.
- What a hook's answer means never changes under its name; a new meaning is a new hook.
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
    """What a plugin says it opens: one kind of backend, under these schemes.

    Args:
        kind: which protocol.
        schemes: the URL schemes, lower case: ``("postgres", "postgresql")``.
        form: how a URL looks, for a person: ``redis://host:port/db?prefix=…``.
        one_process: whether it lives in one process's memory, so that another that opens the same URL finds nothing of it.
    """

    kind: Kind
    schemes: tuple[str, ...]
    form: str
    one_process: bool = False


class PluginColumn(msgspec.Struct, frozen=True):
    """A column of a `PluginRelation`; ``type`` is a SQL type as the catalog spells it: ``text``, ``bigint``, ``text list``."""

    name: str
    type: str
    nullable: bool = True
    comment: str = ""


class Whereabouts(msgspec.Struct, frozen=True):
    """What the rows of a plugin's relation may be derived from: the URLs of the environment that is read, secrets included."""

    blob: str
    consensus: str
    oracle: str

    def __repr__(self) -> str:
        places = (self.blob, self.consensus, self.oracle)
        return f"Whereabouts({', '.join(repr(shown_url(url)) for url in places)})"


class PluginRelation(msgspec.Struct, frozen=True):
    """A relation that a plugin adds to the system catalog: one that describes the backend, a row for each thing in it, not users' data.

    Args:
        name: its name, lower case, unlike every other relation's of the schema.
        schema: a schema of the system catalog.
        columns: at least one.
        comment: what it is, for a person.
        rows: its rows as they are now, each with a value for each column: None, bool, int, float, Decimal, str, bytes, date, datetime (or
            a list of them). Called when a query reads the relation; what it raises fails that query alone.
    """

    name: str
    columns: tuple[PluginColumn, ...]
    comment: str
    rows: Callable[[Whereabouts], Iterable[tuple[Any, ...]]]
    schema: str = "mz_internal"


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
def mzsql_builtin_relations() -> list[PluginRelation] | None:
    """Relations to add to the system catalog, each with the function that yields its rows."""
