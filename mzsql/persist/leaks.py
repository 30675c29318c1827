"""Finds leaked objects: what writers that were killed left in Blob, and no shard's state will ever name.

Promise: an object counts as leaked if no state that was fetched after the object was listed names it (in a batch, as
garbage or as a rollup), and if it is not protected. If deletion is requested, it is deleted once this very client
has found it so for a day (or the time requested), on its own monotonic clock. Names contain the time by their
writers' clocks; that is reported, but decides no deletion: a finder whose clock is a day ahead would delete what is
about to be appended. Objects whose names have another form are never deleted. Listings are processed page by page,
so memory is bounded by a page, the states of its shards, and the leaks being waited for. Trade-off: only time
distinguishes a leak from a batch that was written and is yet to be appended; a batch that waits longer must be
protected by whoever holds it, and a finder must have run that long before it deletes its first leak. Source:
Materialize's persist design, "maybe a leaked-blob finder".
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Literal

import msgspec

from mzsql.location import Unfinished, UploadSweepable, UsageError
from mzsql.persist.clock import Deadline
from mzsql.persist.context import Context
from mzsql.persist.deciding import known_keys
from mzsql.persist.errors import CorruptPart, MissingPart, NewerVersion
from mzsql.persist.machine import Shard
from mzsql.persist.parts import delete_objects
from mzsql.persist.shard_reports import object_time, rollup_keys
from mzsql.repr.errors import SqlError

DAY_MS = 24 * 3600 * 1000

_PAGE = 1000
_SHARDS_KEPT = 64

Kind = Literal["object", "of no shard", "upload"]


class Leak(msgspec.Struct, frozen=True, kw_only=True):
    """Something in Blob that costs storage and that nothing refers to.

    Attributes:
        kind: an ``object`` under a shard's prefix, an object ``of no shard``, or an unfinished ``upload``.
        key: its key; empty for an upload if the store does not know its target.
        bytes: its size.
        age_ms: how long ago it was named or begun, if its writer's clock and this one agree; `None` if unknown.
        seen_ms: for how long this client has found it leaked.
        deleted: whether it was deleted now.
    """

    kind: Kind
    key: str
    bytes: int
    age_ms: int | None
    seen_ms: int
    deleted: bool = False


class _States:
    """Fresh states of the shards of a page; the states of a few shards are kept, as following the log is cheaper than
    loading.
    """

    def __init__(self, context: Context, deadline: Callable[[], Deadline]) -> None:
        self._context = context
        self._deadline = deadline
        self._shards: OrderedDict[str, Shard] = OrderedDict()
        self.unreadable: dict[str, SqlError] = {}

    def are_leaks(self, shard_id: str, keys: Collection[str]) -> tuple[Kind, set[str]]:
        """Return which of ``keys`` the shard's state does not name now: none if the state cannot be read, all if there
        is no such shard.
        """
        try:
            named = self._named(shard_id)
        except (NewerVersion, CorruptPart, MissingPart) as failure:
            # A shard that cannot be read must not keep the leaks of others from being found.
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
    """Yield what nothing refers to; a generator that works while it is iterated.

    Args:
        context: the client's.
        older_than_ms: only what seems this old, or was found for this long; only the latter is deleted. With 0 it is
            deleted at first sight, so nothing may be writing then. Objects whose names tell no time are all
            reported, and none is deleted.
        shard_ids: look only under these shards' prefixes, and not for unfinished uploads; everywhere by default.
        protected: returns the keys of batches that are written, not appended yet, and held by someone; called for
            each page.
        delete: delete what was found.
        delete_of_no_shard: delete also objects of shards that this Consensus does not know; with a wrong URL they
            may belong to another.
        timeout: seconds for each call to a backend.

    Raises:
        UsageError: the age is negative.
        NewerVersion, CorruptPart, MissingPart: the state of a shard cannot be read, so what it names is unknown;
            raised after everything else was found.
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
    this_round = context.unnamed.begin_round()
    prefixes = [""] if shard_ids is None else [f"{shard_id}/" for shard_id in shard_ids]
    for prefix in prefixes:
        listing = iter(context.blob.list_keys_and_metadata(prefix))
        # List a page before its shards' states are fetched: an object that is appended meanwhile is named by the
        # state.
        while page := list(itertools.islice(listing, _PAGE)):
            leaks = [
                leak
                for leak in _unnamed(page, states, protected, context, this_round)
                if leak.age_ms is None or max(leak.age_ms, leak.seen_ms) >= older_than_ms
            ]
            doomed = [
                leak.key
                for leak in leaks
                if leak.age_ms is not None
                and leak.seen_ms >= older_than_ms
                and (leak.kind == "object" or delete_of_no_shard)
            ]
            if delete and doomed:
                delete_objects(context, doomed, deadline())
                context.meter.metrics.leaks_deleted.inc(len(doomed))
            gone = frozenset(doomed) if delete else frozenset()
            for leak in leaks:
                yield msgspec.structs.replace(leak, deleted=leak.key in gone)
    if shard_ids is None:
        yield from _uploads(context, older_than_ms, delete, this_round)
    for prefix in prefixes:
        context.unnamed.end_round(this_round, prefix)
    for failure in states.unreadable.values():
        raise failure


def _unnamed(
    page: Sequence[tuple[str, int]],
    states: _States,
    protected: Callable[[], Collection[str]],
    context: Context,
    this_round: int,
) -> Iterator[Leak]:
    now_ms = context.clock.now_ms()
    # Ask for protected keys before fetching states: a log drops a batch only once the shard has it, so one of the two
    # names it.
    spared = frozenset(protected())
    by_prefix = sorted(page, key=lambda one: one[0].partition("/")[0])
    for prefix, group in itertools.groupby(by_prefix, lambda one: one[0].partition("/")[0]):
        sizes = {key: size for key, size in group if key not in spared}
        kind, leaked = states.are_leaks(prefix, sizes)
        for key in sorted(leaked):
            written = object_time(key)
            yield Leak(
                kind=kind,
                key=key,
                bytes=sizes[key],
                age_ms=None if written is None else max(0, now_ms - written),
                seen_ms=context.unnamed.meet(key, this_round),
            )


def _uploads(context: Context, older_than_ms: int, delete: bool, this_round: int) -> Iterator[Leak]:
    blob = context.blob
    if not isinstance(blob, UploadSweepable):
        return
    now = context.clock.now_ms()
    listing = iter(blob.list_unfinished())
    while page := list(itertools.islice(listing, _PAGE)):
        for unfinished in page:
            leak = _upload_leak(unfinished, now, context, this_round)
            if delete and leak.seen_ms >= older_than_ms:
                blob.abort_unfinished(unfinished)
                context.meter.metrics.leaks_deleted.inc()
                leak = msgspec.structs.replace(leak, deleted=True)
            if max(leak.age_ms or 0, leak.seen_ms) >= older_than_ms:
                yield leak


def _upload_leak(unfinished: Unfinished, now_ms: int, context: Context, this_round: int) -> Leak:
    return Leak(
        kind="upload",
        key=unfinished.key,
        bytes=unfinished.size,
        age_ms=max(0, now_ms - unfinished.started_ms),
        # A leading slash, which no object's key has, keeps uploads apart from objects.
        seen_ms=context.unnamed.meet(f"/{unfinished.key}/{unfinished.upload}", this_round),
    )
