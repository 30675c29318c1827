"""From URLs to backends, through the installed plugins.

Promise: a scheme that no plugin or several plugins serve is an error that lists what is installed and says what to
install. A plugin that cannot be imported, does not match the hooks, was written for newer ones, or fails when called,
is reported and does not affect others. No plugin is known here by name. The trade-off: a plugin that does not declare
its schemes is asked about every URL, and a backend that it opens is closed again if another plugin claims the scheme
too.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, get_args
from urllib.parse import SplitResult

import msgspec
import pluggy

from mzsql.location import hookspecs
from mzsql.location.discovery import find_plugins
from mzsql.location.errors import ContestedScheme, PluginFailed, PluginWarning, UnknownScheme
from mzsql.location.hookspecs import HOOKS_VERSION, Kind, PluginRelation, Serves
from mzsql.location.protocols import Blob, Consensus, TimestampOracle
from mzsql.location.urls import shown_url, split_url, without_secrets
from mzsql.repr.errors import SqlError
from mzsql.repr.version import VERSION

State = Literal["loaded", "failed", "refused"]

_WHAT: dict[str, str] = {
    "blob": "Blob store",
    "consensus": "Consensus store",
    "oracle": "timestamp oracle",
}
_PROTOCOLS: dict[str, type] = {"blob": Blob, "consensus": Consensus, "oracle": TimestampOracle}
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*\Z")
_BY_PROGRAM = "(registered by the program)"
#: A plugin adds at most so many relations to the system catalog.
_MOST_RELATIONS = 1000


class Installed(msgspec.Struct, frozen=True):
    """A plugin, and whether it is loaded.

    Attributes:
        name: the entry point's name.
        distribution, version: its distribution; ``(unknown)`` where the metadata has none.
        state: ``loaded``; ``failed`` (broken); or ``refused`` (intact, but written for another version of the hooks).
        failure: why it is not loaded, or what is wrong with a loaded one.
        hooks_version: the version of the hooks that it was written for.
        serves: what it declares to open.
        declares: whether it declares what it opens.
        deprecated: deprecated hooks and arguments that it uses.
    """

    name: str
    distribution: str
    version: str
    state: State = "loaded"
    failure: str | None = None
    hooks_version: int = 1
    serves: tuple[Serves, ...] = ()
    declares: bool = False
    deprecated: tuple[str, ...] = ()


class Registry:
    """The plugins of one process. Thread-safe.

    Args:
        plugins: pairs of name and plugin object to register besides those found by entry point.
        discover: whether to look for entry points in the group ``mzsql``.
        specs: the hooks; tests may pass others.
    """

    def __init__(
        self,
        plugins: Sequence[tuple[str, object]] = (),
        *,
        discover: bool = True,
        specs: Sequence[Any] = (hookspecs,),
    ) -> None:
        self.manager = pluggy.PluginManager(hookspecs.PROJECT)
        for spec in specs:
            self.manager.add_hookspecs(spec)
        self.installed: list[Installed] = []
        #: Grows with each registered plugin, so that values computed from the plugins can be cached.
        self.generation = 0
        self._lock = threading.RLock()
        if discover:
            self._discover()
        for name, plugin in plugins:
            self.register(name, plugin)

    def _discover(self) -> None:
        for found in find_plugins(hookspecs.PROJECT):
            if found.entry is None:
                self._add(
                    Installed(
                        found.name, found.distribution, found.version, "failed", found.failure
                    )
                )
                continue
            try:
                plugin = found.entry.load()
            except (Exception, SystemExit) as failure:  # a stranger's module may fail in any way
                self._add(
                    Installed(
                        found.name, found.distribution, found.version, "failed", _told(failure)
                    )
                )
            else:
                self.register(found.name, plugin, found.distribution, found.version)

    def register(
        self, name: str, plugin: object, distribution: str = _BY_PROGRAM, version: str = ""
    ) -> Installed:
        """Register a plugin object. Never raises for a plugin that does not match the hooks.

        Returns:
            Its state, which `installed` has too.
        """
        base = Installed(name, distribution, version)
        try:
            said = getattr(plugin, "MZSQL_HOOKS", 1)
        except (Exception, SystemExit) as raised:  # an object may compute its attributes
            return self._add(msgspec.structs.replace(base, state="failed", failure=_told(raised)))
        if not isinstance(said, int) or isinstance(said, bool) or said < 1:
            failure = f"its MZSQL_HOOKS is {said!r}, not a version of the hooks"
            return self._add(msgspec.structs.replace(base, state="failed", failure=failure))
        base = msgspec.structs.replace(base, hooks_version=said)
        if said > HOOKS_VERSION:
            failure = (
                f"it is written for version {said} of the hooks and mzsql {VERSION} has version {HOOKS_VERSION}:"
                f" upgrade mzsql, or install an older {distribution if version else name}"
            )
            return self._add(msgspec.structs.replace(base, state="refused", failure=failure))
        with self._lock:
            try:
                serves, declares, deprecated = self._take(name, plugin)
            except (Exception, SystemExit) as failure:  # whatever it is, it is the plugin's
                return self._add(
                    msgspec.structs.replace(base, state="failed", failure=_told(failure))
                )
            return self._add(
                msgspec.structs.replace(
                    base, serves=serves, declares=declares, deprecated=deprecated
                )
            )

    def _add(self, installed: Installed) -> Installed:
        with self._lock:
            self.installed.append(installed)
            self.generation += 1
        return installed

    def _take(self, name: str, plugin: object) -> tuple[tuple[Serves, ...], bool, tuple[str, ...]]:
        if plugin is None or self.manager.has_plugin(name):
            raise ValueError(
                "its entry point names None"
                if plugin is None
                else f"another plugin is named {name!r} too: uninstall one of them"
            )
        if self.manager.register(plugin, name=name) is None:
            raise ValueError("it is blocked")
        try:
            hooks = self._hooks_of(plugin)
            unknown = [hook.name for hook in hooks if not hook.has_spec()]
            if unknown:
                raise ValueError(
                    f"there is no hook {unknown[0]!r} in version {HOOKS_VERSION} of the hooks"
                )
            if not hooks:
                raise ValueError("it implements no hook: is @hookimpl missing?")
            serves, declares = self._declared(plugin, {hook.name for hook in hooks})
            return serves, declares, tuple(_deprecated(plugin, hooks))
        except BaseException:
            self.manager.unregister(name=name)
            raise

    def _hooks_of(self, plugin: object) -> list[pluggy.HookCaller]:
        return self.manager.get_hookcallers(plugin) or []

    def _declared(self, plugin: object, hooks: set[str]) -> tuple[tuple[Serves, ...], bool]:
        if "mzsql_serves" not in hooks:
            return (), False
        serves: list[Serves] = []
        for answer in self._only(plugin, "mzsql_serves")():
            if isinstance(answer, str) or not isinstance(answer, Iterable):
                raise ValueError(f"its mzsql_serves answers {answer!r}, not a list of Serves")
            serves.extend(answer)
        for one in serves:
            if not isinstance(one, Serves) or one.kind not in get_args(Kind):
                raise ValueError(f"its mzsql_serves has {one!r}, which says no known kind")
            if not isinstance(one.schemes, tuple | list):
                raise ValueError(f"its mzsql_serves has schemes {one.schemes!r}, not a tuple")
            if not isinstance(one.form, str):
                raise ValueError(f"its mzsql_serves has the form {one.form!r}, not a text")
            bad = [s for s in one.schemes if not isinstance(s, str) or not _SCHEME.match(s)]
            if bad or not one.schemes:
                raise ValueError(f"its mzsql_serves has schemes no URL can have: {one.schemes!r}")
            if f"mzsql_open_{one.kind}" not in hooks:
                raise ValueError(f"it says it serves {one.kind} and has no mzsql_open_{one.kind}")
        return tuple(serves), True

    def _only(self, plugin: object, hook: str) -> pluggy.HookCaller:
        """A hook that calls this plugin only."""
        return self.manager.subset_hook_caller(hook, self.manager.get_plugins() - {plugin})

    def open_blob(self, url: str) -> Blob:
        """The Blob store at ``url``.

        Raises:
            UnknownScheme: no plugin, or several, serve the scheme.
            InvalidUrl: the plugin does not understand the rest.
            PluginFailed: the plugin raised something that no backend may raise, or returned something that is no Blob.
        """
        blob: Blob = self._open("blob", url)
        return blob

    def open_consensus(self, url: str) -> Consensus:
        """The Consensus store at ``url``.

        Raises:
            UnknownScheme, InvalidUrl, PluginFailed: as `open_blob`.
        """
        consensus: Consensus = self._open("consensus", url)
        return consensus

    def open_oracle(self, url: str, timeline: str, now: Callable[[], int]) -> TimestampOracle:
        """The oracle of ``timeline`` at ``url``; ``now`` is the wall clock in milliseconds.

        Raises:
            UnknownScheme, InvalidUrl, PluginFailed: as `open_blob`.
        """
        oracle: TimestampOracle = self._open("oracle", url, timeline=timeline, now=now)
        return oracle

    def scratch_url(self, name: str, kind: Kind, directory: str) -> str | None:
        """A URL on which the kit for ``kind`` can run on the plugin ``name`` without setup; None where the plugin gives
        none.

        Raises:
            PluginFailed: the plugin raised.
        """
        plugin = self.manager.get_plugin(name)
        if plugin is None:
            return None
        try:
            url = self._only(plugin, "mzsql_scratch_url")(kind=kind, directory=directory)
        except (Exception, SystemExit) as failure:
            raise PluginFailed(
                f"plugin {self._called(name)} failed to name a scratch URL: {_told(failure)}"
            ) from failure
        if url is not None and not isinstance(url, str):
            raise PluginFailed(f"plugin {self._called(name)} names the scratch URL {url!r}")
        return url

    def builtin_relations(self) -> list[tuple[str, PluginRelation]]:
        """The relations that plugins add to the system catalog, with the plugins' names; a plugin that fails is left
        out, with a warning.
        """
        found: list[tuple[str, PluginRelation]] = []
        for name, plugin in self._plugins():
            try:
                answers = self._only(plugin, "mzsql_builtin_relations")()
                every = itertools.chain.from_iterable(answers)
                relations = list(itertools.islice(every, _MOST_RELATIONS + 1))
                if len(relations) > _MOST_RELATIONS:
                    raise ValueError(f"there are more than {_MOST_RELATIONS}")
                for relation in relations:
                    if not isinstance(relation, PluginRelation):
                        raise TypeError(f"{relation!r} is no PluginRelation")
            except (Exception, SystemExit) as failure:
                self.complain(name, f"its relations cannot be had: {_told(failure)}")
            else:
                found.extend((name, relation) for relation in relations)
        return found

    def complain(self, name: str, what: str) -> None:
        """Record, and warn of, a problem with a plugin that stays loaded."""
        warnings.warn(f"plugin {self._called(name)}: {what}", PluginWarning, stacklevel=3)
        with self._lock:
            for n, one in enumerate(self.installed):
                told = one.failure or ""
                if one.name == name and one.state == "loaded" and what not in told:
                    failure = f"{told}; {what}" if told else what
                    self.installed[n] = msgspec.structs.replace(one, failure=failure)

    def _plugins(self) -> list[tuple[str, object]]:
        with self._lock:
            return [(name, p) for name, p in self.manager.list_name_plugin() if p is not None]

    def _open(self, kind: Kind, url: str, **rest: Any) -> Any:
        split = split_url(url)
        declared, asked = self._candidates(kind, split.scheme)
        if len(declared) > 1:
            raise self._contested(kind, split, [name for name, _ in declared])
        claims: list[tuple[str, Any]] = []
        failures: list[tuple[str, SqlError]] = []
        try:
            for name, plugin in asked:
                try:
                    backend = self._ask(name, plugin, kind, split, rest)
                except SqlError as failure:
                    # A plugin that does not declare its schemes may just have failed on another plugin's URL.
                    failures.append((name, failure))
                else:
                    claims.extend([(name, backend)] if backend is not None else [])
            for name, plugin in declared:
                backend = self._ask(name, plugin, kind, split, rest)
                if backend is None:
                    raise PluginFailed(
                        f"plugin {self._called(name)} says it serves a {_WHAT[kind]} with scheme"
                        f" {split.scheme!r}, and does not open {shown_url(split)}"
                    )
                claims.append((name, backend))
            if not claims:
                raise failures[0][1] if failures else self._unserved(kind, split)
            if len(claims) > 1:
                raise self._contested(kind, split, [name for name, _ in claims])
        except BaseException:
            for _, backend in claims:
                backend.close()
            raise
        for name, raised in failures:
            self.complain(name, f"it failed when asked about a URL of another plugin: {raised}")
        return claims[0][1]

    def _candidates(
        self, kind: Kind, scheme: str
    ) -> tuple[list[tuple[str, object]], list[tuple[str, object]]]:
        """The plugins that declare the scheme, and those that declare nothing."""
        said = {one.name: one for one in self.installed if one.state == "loaded"}
        declared, asked = [], []
        for name, plugin in self._plugins():
            one = said.get(name)
            if one is None or not one.declares:
                asked.append((name, plugin))
            elif any(s.kind == kind and scheme in s.schemes for s in one.serves):
                declared.append((name, plugin))
        return declared, asked

    def _ask(
        self, name: str, plugin: object, kind: Kind, split: SplitResult, rest: dict[str, Any]
    ) -> Any:
        caller = self._only(plugin, f"mzsql_open_{kind}")
        try:
            backend = caller(url=split, **rest)
        except SqlError:
            raise
        except (Exception, SystemExit) as failure:  # a stranger's code does not end this program
            text = without_secrets(_told(failure), split)
            raise PluginFailed(
                f"plugin {self._called(name)} failed to open {shown_url(split)}: {text}",
                hint="This is a bug of the plugin: a backend raises only UsageError, Determinate, Indeterminate and InvalidUrl.",
            ) from (failure if text == _told(failure) else None)
        if backend is not None and not isinstance(backend, _PROTOCOLS[kind]):
            lacks = ", ".join(sorted(_methods(_PROTOCOLS[kind]) - set(dir(backend))))
            raise PluginFailed(
                f"plugin {self._called(name)} opened {shown_url(split)} as a {type(backend).__name__},"
                f" which is no {_WHAT[kind]}: it lacks {lacks}"
            )
        return backend

    def _called(self, name: str) -> str:
        for one in self.installed:
            if one.name == name:
                return f"{name!r} ({one.distribution}{' ' + one.version if one.version else ''})"
        return repr(name)

    def _contested(self, kind: Kind, split: SplitResult, names: list[str]) -> ContestedScheme:
        return ContestedScheme(
            f"more than one plugin serves a {_WHAT[kind]} with scheme {split.scheme!r}: {', '.join(names)}",
            detail=self._describe(),
            hint="Uninstall all but one of them.",
        )

    def _unserved(self, kind: Kind, split: SplitResult) -> UnknownScheme:
        scheme = split.scheme
        package = "mzsql-" + re.sub(r"[^a-z0-9]+", "-", scheme).strip("-")
        hint = (
            f"Install the plugin that serves it: pip install {package} (by convention a plugin's"
            " distribution is named mzsql- and the scheme)."
        )
        served = [_WHAT[s.kind] for i in self.installed for s in i.serves if scheme in s.schemes]
        broken = [i for i in self.installed if i.state != "loaded" and _about(i, scheme, package)]
        if served:
            hint = f"{scheme!r} serves a {' and a '.join(dict.fromkeys(served))} only."
        elif broken:
            hint = f"The plugin {broken[0].name!r} is installed and did not load; see the detail."
        return UnknownScheme(
            f"no installed plugin serves a {_WHAT[kind]} with scheme {scheme!r}",
            detail=self._describe(),
            hint=hint,
        )

    def _describe(self) -> str:
        if not self.installed:
            return "No plugins are installed."
        lines = []
        for one in self.installed:
            how = "refused" if one.state == "refused" else "failed to load"
            failure = f", {how}: {one.failure}" if one.state != "loaded" else ""
            version = f" {one.version}" if one.version else ""
            lines.append(f"{one.name} ({one.distribution}{version}{failure})")
        return "Installed plugins: " + "; ".join(lines) + "."


def _about(one: Installed, scheme: str, package: str) -> bool:
    return one.name == scheme or one.distribution.lower().replace("_", "-") == package


def _told(failure: BaseException) -> str:
    try:
        text = str(failure).strip()
    except Exception:  # a plugin's own exception may fail to say what it is about
        text = ""
    if isinstance(failure, pluggy.PluginValidationError):
        text = " ".join(text.split())
    return f"{type(failure).__name__}: {text}" if text else type(failure).__name__


def _methods(protocol: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(protocol, inspect.isfunction) if name[0] != "_"}


def _deprecated(plugin: object, hooks: list[pluggy.HookCaller]) -> list[str]:
    """The deprecated hooks and arguments that a plugin uses; pluggy has warned of them already."""
    found = []
    for hook in hooks:
        spec = hook.spec
        for impl in hook.get_hookimpls():
            if spec is None or impl.plugin is not plugin:
                continue
            if spec.warn_on_impl is not None:
                found.append(f"{hook.name}: {spec.warn_on_impl}")
            warned = spec.warn_on_impl_args or {}
            used = [a for a in (*impl.argnames, *impl.kwargnames) if a in warned]
            found.extend(f"{hook.name}({a}): {warned[a]}" for a in used)
    return found


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
