"""The finder of leaked objects: what writers that were killed left in Blob, which no shard's state will ever name.

Promise: an object counts as leaked when no state that was fetched after the object was listed names it (in a batch, as garbage or as a
rollup), when it is not protected, and when its name tells that it is older than a day (or what else is asked for). Nothing is deleted
unless told so, and nothing ever whose age is not known. Listings are worked off page by page, so memory is bounded by a page and the
states of its shards. Trade-off: age is what tells a leak from a batch that was written and is yet to be appended; a batch that waits for
longer must be protected by whoever holds it. Source: the persist design, "maybe a leaked-blob finder".
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

import msgspec

from mzsql.location import Unfinished, UploadSweepable, UsageError
from mzsql.persist.clock import Deadline
from mzsql.persist.commands import known_keys
from mzsql.persist.errors import CorruptPart, MissingPart, NewerVersion
from mzsql.persist.inspection import object_time, rollup_keys
from mzsql.persist.machine import Context, Shard
from mzsql.persist.parts import delete_objects
from mzsql.repr.errors import SqlError

DAY_MS = 24 * 3600 * 1000

_PAGE = 1000
_SHARDS_KEPT = 64

Kind = Literal["object", "of no shard", "upload"]


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """Something in Blob that costs storage and that nobody refers to.

    Attributes:
        kind: an ``object`` under a shard's prefix, an object ``of no shard``, or an unfinished ``upload``.
        key: its key; empty for an upload of which the store does not know what it was to become.
        bytes: its size.
        age_ms: how long ago it was named or begun; `None` when that is not known.
        deleted: whether it is gone now.
    """

    kind: Kind
    key: str
    bytes: int
    age_ms: int | None
    deleted: bool = False


class _States:
    """Fresh states of the shards a page is about; those of few shards are kept, to be followed rather than loaded."""

    def __init__(self, context: Context, deadline: Callable[[], Deadline]) -> None:
        self._context = context
        self._deadline = deadline
        self._shards: OrderedDict[str, Shard] = OrderedDict()
        self.unreadable: dict[str, SqlError] = {}

    def are_leaks(self, shard_id: str, keys: Collection[str]) -> tuple[Kind, set[str]]:
        """Which of ``keys`` the shard's state does not name now: none when nobody knows, all when there is no such shard."""
        try:
            named = self._named(shard_id)
        except (NewerVersion, CorruptPart, MissingPart) as failure:
            # One shard that cannot be read must not keep the leaks of others.
            self.unreadable.setdefault(shard_id, failure)
            return "object", set()
        if named is None:
            return "of no shard", set(keys)
        return "object", set(keys) - named

    def _named(self, shard_id: str) -> set[str] | None:
        shard = self._shards.get(shard_id) or Shard(shard_id, self._context)
        state = shard.fetch(self._deadline())
        if state is None:
            return None
        self._shards[shard_id] = shard
        self._shards.move_to_end(shard_id)
        if len(self._shards) > _SHARDS_KEPT:
            self._shards.popitem(last=False)
        return known_keys(state) | rollup_keys(state)


def find_leaks(
    context: Context,
    *,
    older_than_ms: int = DAY_MS,
    shard_ids: Sequence[str] | None = None,
    protected: Callable[[], Collection[str]] | None = None,
    delete: bool = False,
    delete_of_no_shard: bool = False,
    timeout: float | None = None,
) -> Iterator[Leak]:
    """What nobody refers to, as it is found; a generator that works while it is drawn from.

    Args:
        context: the client's.
        older_than_ms: only what is at least so old; of objects whose names tell no time all are found, and none is deleted.
        shard_ids: look under these shards' prefixes only, and for no unfinished uploads; everywhere by default.
        protected: the keys of batches that are written, not appended yet, and held by someone: asked for anew for each page.
        delete: delete what was found.
        delete_of_no_shard: also objects of shards that this Consensus does not know, which are another's if a URL is wrong.
        timeout: seconds for each call to a backend.

    Raises:
        UsageError: the age is negative.
        NewerVersion, CorruptPart, MissingPart: the state of a shard cannot be read, so nobody knows what it names; raised after all
            else was found.
    """
    if older_than_ms < 0:
        raise UsageError(f"an age cannot be negative, got {older_than_ms} ms")
    return _found(
        context,
        older_than_ms,
        shard_ids,
        protected or tuple,
        delete,
        delete_of_no_shard,
        lambda: context.deadline(timeout),
    )


def _found(
    context: Context,
    older_than_ms: int,
    shard_ids: Sequence[str] | None,
    protected: Callable[[], Collection[str]],
    delete: bool,
    delete_of_no_shard: bool,
    deadline: Callable[[], Deadline],
) -> Iterator[Leak]:
    states = _States(context, deadline)
    prefixes = [""] if shard_ids is None else [f"{shard_id}/" for shard_id in shard_ids]
    for prefix in prefixes:
        listing = iter(context.blob.list_keys_and_metadata(prefix))
        # A page is held before its states are fetched, so what is appended meanwhile is named by them.
        while page := list(itertools.islice(listing, _PAGE)):
            now = context.clock.now_ms()
            old = [one for one in page if _is_candidate(one[0], now, older_than_ms)]
            leaks = list(_unnamed(old, states, protected, now)) if old else []
            doomed = [
                leak.key
                for leak in leaks
                if leak.age_ms is not None and (leak.kind == "object" or delete_of_no_shard)
            ]
            if delete and doomed:
                delete_objects(context, doomed)
                context.meter.metrics.leaks_deleted.inc(len(doomed))
            gone = frozenset(doomed) if delete else frozenset()
            for leak in leaks:
                yield msgspec.structs.replace(leak, deleted=leak.key in gone)
    if shard_ids is None:
        yield from _uploads(context, older_than_ms, delete)
    for failure in states.unreadable.values():
        raise failure


def _is_candidate(key: str, now_ms: int, older_than_ms: int) -> bool:
    written = object_time(key)
    return written is None or now_ms - written >= older_than_ms


def _unnamed(
    page: Sequence[tuple[str, int]],
    states: _States,
    protected: Callable[[], Collection[str]],
    now_ms: int,
) -> Iterator[Leak]:
    # Protected keys before states: a batch leaves a log only once its shard holds it.
    spared = frozenset(protected())
    by_prefix = sorted(page, key=lambda one: one[0].partition("/")[0])
    for prefix, group in itertools.groupby(by_prefix, lambda one: one[0].partition("/")[0]):
        sizes = {key: size for key, size in group if key not in spared}
        kind, leaked = states.are_leaks(prefix, sizes)
        for key in sorted(leaked):
            written = object_time(key)
            age_ms = None if written is None else now_ms - written
            yield Leak(kind=kind, key=key, bytes=sizes[key], age_ms=age_ms)


def _uploads(context: Context, older_than_ms: int, delete: bool) -> Iterator[Leak]:
    blob = context.blob
    if not isinstance(blob, UploadSweepable):
        return
    now = context.clock.now_ms()
    old = (u for u in blob.list_unfinished() if now - u.started_ms >= older_than_ms)
    while page := list(itertools.islice(old, _PAGE)):
        for unfinished in page:
            if delete:
                blob.abort_unfinished(unfinished)
                context.meter.metrics.leaks_deleted.inc()
            yield _upload_leak(unfinished, now, deleted=delete)


def _upload_leak(unfinished: Unfinished, now_ms: int, *, deleted: bool) -> Leak:
    return Leak(
        kind="upload",
        key=unfinished.key,
        bytes=unfinished.size,
        age_ms=now_ms - unfinished.started_ms,
        deleted=deleted,
    )
