"""Which shard holds the expression cache, which damaged shards preceded it, and how builds are told apart.

Promise: the shard's id is in the environment's entry of the catalog. Replacing a damaged shard changes that entry,
once, however many processes find the damage at the same time. A replaced shard is never read again; its objects stay in
the Blob store for examination.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import msgspec

from mzsql.catalog.builtin import builtins
from mzsql.catalog.change import NOTHING, Change
from mzsql.catalog.durable import DurableCatalog
from mzsql.catalog.objects import SetAside
from mzsql.catalog.state import CatalogState
from mzsql.persist import Clock, PersistClient
from mzsql.repr.errors import InternalError
from mzsql.storage import Writing

#: How many replaced shards the catalog remembers, and how many unreadable entries this process does.
_REMEMBERED = 16
_ENTRIES_REMEMBERED = 1000

_RELEASE = re.compile(r"\d+(\.\d+)*")


class CatalogCacheShard:
    """The cache's shard as the catalog names it. Thread-safe.

    Args:
        catalog: the environment's catalog.
        persist: makes shard ids.
        clock: gives the time at which damage was found.
        writing: whether this process may change the catalog.
    """

    def __init__(
        self,
        catalog: DurableCatalog,
        persist: PersistClient,
        clock: Clock,
        writing: Writing,
    ) -> None:
        self._catalog = catalog
        self._persist = persist
        self._clock = clock
        self._writing = writing
        self._lock = threading.Lock()
        self._here: deque[SetAside] = deque(maxlen=_ENTRIES_REMEMBERED)

    def current(self) -> str:
        """The shard's id, as of the catalog last read.

        Raises:
            InternalError: the catalog has no entry of its environment, which bootstrapping writes first.
        """
        meta = self._catalog.state.meta
        if meta is None:
            raise InternalError("the catalog has no entry of its environment")
        return meta.cache_shard

    def set_aside(self, shard: str, reason: str) -> str | None:
        """Replace a damaged shard by a new one; see `expression_cache.CacheShard`.

        Returns:
            The shard to go on with: a new one, or the one that another process put there first. None where this process
                may not write.

        Raises:
            LocationError: the catalog cannot be changed.
            Fenced: a higher deploy generation was promoted.
        """
        found = SetAside(shard, self._clock.now_ms(), reason)
        if not self._writing.allowed:
            with self._lock:
                self._here.append(found)
            return None
        fresh = self._persist.new_shard_id()

        def command(state: CatalogState) -> tuple[Change, str]:
            meta = state.meta
            assert meta is not None
            if meta.cache_shard != shard:
                return NOTHING, meta.cache_shard
            before = (*meta.caches_set_aside, found)[-_REMEMBERED:]
            changed = msgspec.structs.replace(meta, cache_shard=fresh, caches_set_aside=before)
            return Change(meta=changed), fresh

        return self._catalog.transact(command)

    def damaged_entry(self, key: str, reason: str) -> None:
        """Remember an entry that could not be read; see `expression_cache.CacheShard`."""
        found = SetAside(self.current(), self._clock.now_ms(), reason, key)
        with self._lock:
            if not any(one.entry == key for one in self._here):
                self._here.append(found)

    def incidents(self) -> Iterator[SetAside]:
        """Every shard replaced by any process, then the entries of the present one that this process could not read."""
        meta = self._catalog.state.meta
        yield from () if meta is None else meta.caches_set_aside
        with self._lock:
            yield from list(self._here)


def build_of(version: str) -> str:
    """The name of a build, under which its entries are kept.

    A release is named by its version. Anything else also has a checksum of the package's code and of the builtin
    relations, so that editing the code invalidates the cached plans.
    """
    root = Path(__file__).parents[2]
    released = _RELEASE.fullmatch(version) and not (root.parent / "pyproject.toml").exists()
    return version if released else f"{version}+{_checksum(root)}"


@functools.cache
def _checksum(root: Path) -> str:
    digest = hashlib.sha256()
    # As text: building a thousand `Path` objects takes longer than the checksum itself.
    files = sorted(
        os.path.join(folder, name)  # noqa: PTH118
        for folder, _, names in os.walk(root)
        for name in names
        if name.endswith(".py")
    )
    for file in files:
        digest.update(file.removeprefix(str(root)).encode())
        with open(file, "rb") as opened:  # noqa: PTH123
            digest.update(opened.read())
    # Builtin relations are SQL files, and some come from plugins, so they are not among the files above; plans name
    # them by id.
    for one in builtins().values():
        digest.update(f"{one.id} {one.sql}\0".encode())
    return digest.hexdigest()[:16]
