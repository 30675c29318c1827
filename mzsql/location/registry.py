"""From a URL to a backend, through whatever plugins are installed.

Promise: a scheme nobody claims, or that several claim, is an error that lists what is installed and says what to install; a plugin
that fails to import is reported and does not take the rest down. Trade-off: every plugin is asked about every URL, so that a double
claim is noticed; a second backend opened by the asking is closed again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import metadata
from typing import Any

import msgspec
import pluggy

from mzsql.location import hookspecs
from mzsql.location.errors import UnknownScheme
from mzsql.location.protocols import Blob, Consensus, TimestampOracle
from mzsql.location.urls import split_url

_PACKAGES = {
    "s3": "mzsql-s3",
    "postgres": "mzsql-postgres",
    "postgresql": "mzsql-postgres",
    "cockroach": "mzsql-postgres",
}


class Installed(msgspec.Struct, frozen=True):
    """A plugin found by entry point: its name, the distribution it came in, and why it failed to load (if it did)."""

    name: str
    distribution: str
    failure: str | None = None


class Registry:
    """The plugins of one process.

    Args:
        plugins: pairs of a name and a plugin object to register besides those found by entry point.
        discover: whether to look for entry points of the group ``mzsql``.
    """

    def __init__(
        self, plugins: list[tuple[str, object]] | None = None, *, discover: bool = True
    ) -> None:
        self.manager = pluggy.PluginManager(hookspecs.PROJECT)
        self.manager.add_hookspecs(hookspecs)
        self.installed: list[Installed] = []
        if discover:
            self._discover()
        for name, plugin in plugins or []:
            self.manager.register(plugin, name=name)
            self.installed.append(Installed(name, "(registered by the program)"))

    def _discover(self) -> None:
        for entry in sorted(metadata.entry_points(group=hookspecs.PROJECT), key=lambda e: e.name):
            distribution = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "(unknown)"
            try:
                self.manager.register(entry.load(), name=entry.name)
            except Exception as failure:  # a stranger's module may fail in any way; it is reported
                reason = f"{type(failure).__name__}: {failure}"
                self.installed.append(Installed(entry.name, distribution, reason))
            else:
                self.installed.append(Installed(entry.name, distribution))

    def open_blob(self, url: str) -> Blob:
        """The Blob store at ``url``.

        Raises:
            UnknownScheme: no plugin, or several, serve the scheme.
            InvalidUrl: the plugin cannot make sense of the rest.
        """
        blob: Blob = self._open("mzsql_open_blob", "Blob store", url)
        return blob

    def open_consensus(self, url: str) -> Consensus:
        """The Consensus store at ``url``; raises as `open_blob`."""
        consensus: Consensus = self._open("mzsql_open_consensus", "Consensus store", url)
        return consensus

    def open_oracle(self, url: str, timeline: str, now: Callable[[], int]) -> TimestampOracle:
        """The oracle of ``timeline`` at ``url``, with ``now`` the clock in milliseconds; raises as `open_blob`."""
        oracle: TimestampOracle = self._open(
            "mzsql_open_oracle", "timestamp oracle", url, timeline=timeline, now=now
        )
        return oracle

    def builtin_relations(self) -> list[Any]:
        """What the plugins add to the system catalog."""
        return [r for relations in self.manager.hook.mzsql_builtin_relations() for r in relations]

    def _open(self, hook: str, what: str, url: str, **rest: Any) -> Any:
        split = split_url(url)
        claims: list[tuple[str, Any]] = []
        plugins = self.manager.get_plugins()
        for name, plugin in self.manager.list_name_plugin():
            if plugin is None:
                continue
            caller = self.manager.subset_hook_caller(hook, plugins - {plugin})
            try:
                backend = caller(url=split, **rest)
            except BaseException:
                for _, opened in claims:
                    opened.close()
                raise
            if backend is not None:
                claims.append((name, backend))
        if len(claims) == 1:
            return claims[0][1]
        for _, backend in claims:
            backend.close()
        detail = self._describe()
        if claims:
            names = ", ".join(name for name, _ in claims)
            raise UnknownScheme(
                f"more than one plugin serves a {what} with scheme {split.scheme!r}: {names}",
                detail=detail,
                hint="Uninstall all but one of them.",
            )
        package = _PACKAGES.get(split.scheme)
        hint = (
            f"Install the plugin that serves it: pip install {package}"
            if package
            else "Use the scheme of an installed plugin, or install the plugin that serves this one."
        )
        raise UnknownScheme(
            f"no installed plugin serves a {what} with scheme {split.scheme!r}",
            detail=detail,
            hint=hint,
        )

    def _describe(self) -> str:
        if not self.installed:
            return "No plugins are installed."
        lines = []
        for plugin in self.installed:
            failure = f", failed to load: {plugin.failure}" if plugin.failure else ""
            lines.append(f"{plugin.name} ({plugin.distribution}{failure})")
        return "Installed plugins: " + "; ".join(lines) + "."


@functools.cache
def default_registry() -> Registry:
    """The registry of the plugins installed in this interpreter, loaded at first use."""
    return Registry()


def open_blob(url: str) -> Blob:
    """The Blob store at ``url``, by the installed plugins; see `Registry.open_blob`."""
    return default_registry().open_blob(url)


def open_consensus(url: str) -> Consensus:
    """The Consensus store at ``url``, by the installed plugins; see `Registry.open_consensus`."""
    return default_registry().open_consensus(url)


def open_oracle(url: str, timeline: str, now: Callable[[], int]) -> TimestampOracle:
    """The oracle of ``timeline`` at ``url``, by the installed plugins; see `Registry.open_oracle`."""
    return default_registry().open_oracle(url, timeline, now)
