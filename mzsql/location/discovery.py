"""Finding installed plugins by the entry points in the group ``mzsql``.

Promise: a broken distribution (an unreadable version, a malformed list of entry points) is a finding about that
distribution only, and the others are still found. Nothing of a plugin is imported here.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from typing import NamedTuple

UNKNOWN = "(unknown)"


class Found(NamedTuple):
    """An entry point and its distribution; ``entry`` is `None` where the distribution's entry points cannot be read,
    because of ``failure``.
    """

    name: str
    distribution: str
    version: str
    entry: metadata.EntryPoint | None
    failure: str | None = None


def find_plugins(group: str) -> list[Found]:
    """The entry points in ``group``, by name and then distribution."""
    try:
        found = [Found(e.name, *_named(e.dist), e) for e in metadata.entry_points(group=group)]
    except Exception:  # some distribution's metadata is broken: ask each by itself
        found = [one for distribution in _distributions() for one in _of(distribution, group)]
    return sorted(found, key=lambda one: (one.name, one.distribution))


def _distributions() -> Iterator[metadata.Distribution]:
    """Each distribution once: as for imports, the first on the path hides later ones of the same name."""
    seen: set[str] = set()
    for distribution in metadata.distributions():
        name, _ = _named(distribution)
        key = name.lower().replace("-", "_").replace(".", "_")
        if name == UNKNOWN or key not in seen:
            seen.add(key)
            yield distribution


def _of(distribution: metadata.Distribution, group: str) -> Iterator[Found]:
    name, version = _named(distribution)
    try:
        entries = list(distribution.entry_points.select(group=group))
    except Exception as failure:  # a stranger's metadata may be wrong in any way; it is reported
        text = _text(distribution)
        if text is None or f"[{group}]" in text:
            reason = f"its entry points cannot be read: {type(failure).__name__}: {failure}"
            yield Found(name, name, version, None, reason)
        return
    for entry in entries:
        yield Found(entry.name, name, version, entry)


def _text(distribution: metadata.Distribution) -> str | None:
    try:
        return distribution.read_text("entry_points.txt") or ""
    except (OSError, UnicodeError):
        return None


def _named(distribution: metadata.Distribution | None) -> tuple[str, str]:
    """The distribution's name and version; `UNKNOWN` where its metadata has none."""
    if distribution is None:
        return UNKNOWN, UNKNOWN
    try:
        metadata_of = distribution.metadata  # parsed at each access
    except Exception:  # missing or broken metadata, differently in each release of Python
        return UNKNOWN, UNKNOWN
    said = []
    for field in ("Name", "Version"):
        try:
            said.append(str(metadata_of[field] or UNKNOWN))
        except Exception:  # a field that is missing raises in some releases, and is None in others
            said.append(UNKNOWN)
    return said[0], said[1]
