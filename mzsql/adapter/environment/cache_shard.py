"""Which shard the expression cache is on, what became of those before it, and of which build its entries are.

Promise: the shard stands in the environment's entry of the catalog; setting a damaged one aside replaces it there for every process, once,
however many find the damage at the same time. What is set aside is never read again, and its objects stay for who wants to look at them.
"""

from __future__ import annotations

import functools
import hashlib
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from mzsql.catalog.builtin import builtins
from mzsql.catalog.change import NOTHING, Change
from mzsql.catalog.durable import DurableCatalog
from mzsql.catalog.objects import SetAside
from mzsql.catalog.state import CatalogState
from mzsql.persist import Clock, PersistClient
from mzsql.repr.errors import InternalError

#: So many shards that were set aside are remembered, and so many entries that could not be read.
_REMEMBERED = 16
_ENTRIES_REMEMBERED = 1000

_RELEASE = re.compile(r"\d+(\.\d+)*")


class CatalogCacheShard:
    """The cache's shard as the catalog has it. Thread-safe.

    Args:
        catalog: the environment's.
        persist: makes names of shards.
        clock: says when damage was found.
        may_write: whether this process may change the catalog.
    """

    def __init__(
        self,
        catalog: DurableCatalog,
        persist: PersistClient,
        clock: Clock,
        may_write: Callable[[], bool],
    ) -> None:
        self._catalog = catalog
        self._persist = persist
        self._clock = clock
        self._may_write = may_write
        self._lock = threading.Lock()
        self._here: deque[SetAside] = deque(maxlen=_ENTRIES_REMEMBERED)

    def current(self) -> str:
        """The shard, as last seen."""
        meta = self._catalog.state.meta
        if meta is None:
            raise InternalError("the catalog has no entry of its environment")
        return meta.cache_shard

    def set_aside(self, shard: str, reason: str) -> str | None:
        """See `expression_cache.CacheShard`.

        Raises:
            LocationError: the catalog cannot be changed.
            Fenced: a higher deploy generation was promoted.
        """
        found = SetAside(shard, self._clock.now_ms(), reason)
        if not self._may_write():
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
        """See `expression_cache.CacheShard`."""
        found = SetAside(self.current(), self._clock.now_ms(), reason, key)
        with self._lock:
            if not any(one.entry == key for one in self._here):
                self._here.append(found)

    def incidents(self) -> Iterator[SetAside]:
        """Every shard that was set aside, by any process, and what this one could not read of the present one."""
        meta = self._catalog.state.meta
        yield from () if meta is None else meta.caches_set_aside
        with self._lock:
            yield from list(self._here)


def build_of(version: str) -> str:
    """What tells the entries of one program from those of another: its version, and of one that is no release a checksum of its code, the
    builtin relations included.
    """
    root = Path(__file__).parents[2]
    released = _RELEASE.fullmatch(version) and not (root.parent / "pyproject.toml").exists()
    return version if released else f"{version}+{_checksum(root)}"


@functools.cache
def _checksum(root: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode())
        digest.update(path.read_bytes())
    # Some are files of SQL, and a plugin's are elsewhere; plans name them by their ids.
    for one in builtins().values():
        digest.update(f"{one.id} {one.sql}\0".encode())
    return digest.hexdigest()[:16]
