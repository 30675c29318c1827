"""Maintenance of many shards, in a process of its own or now and then: compaction, rollups, collection, what ended shards leave, leaks.

Promise: one shard's failure is reported and stops no other's upkeep; a round may be stopped between any two shards; any number of such
processes, and clients that maintain by themselves, may be at work on a location at once. With ``dry_run`` nothing is changed.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Iterator, Sequence

import msgspec

from mzsql.location.keys import shard_keys
from mzsql.persist.client import PersistClient
from mzsql.persist.errors import MissingPart
from mzsql.persist.leaks import DAY_MS, Leak
from mzsql.persist.maintenance import due
from mzsql.persist.state import ShardState
from mzsql.repr.errors import SqlError

_log = logging.getLogger(__name__)

_QUIET_MS = 3_600_000
"""In a shard that was not changed for so long all garbage is collected, however little."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """What kept a shard, or the search for leaks, from its upkeep."""

    shard_id: str
    error: str
    hint: str = ""


class Upkeep(msgspec.Struct, kw_only=True):
    """What rounds of upkeep did, or with a dry run would have looked at; mutable, filled as they go.

    ``due`` is how many shards were worth maintaining, ``collectable`` how many objects of garbage nobody held any more.
    Leaks that were found and not deleted are in ``leaks_left``.
    """

    shards: int = 0
    due: int = 0
    collectable: int = 0
    merges: int = 0
    batches_merged: int = 0
    rollups: int = 0
    objects_deleted: int = 0
    entries_truncated: int = 0
    leaks_deleted: int = 0
    leaked_bytes_deleted: int = 0
    leaks_left: int = 0
    leaked_bytes_left: int = 0
    failures: list[Failure] = []


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What a round is to do.

    Attributes:
        shard_ids: these shards; all of the location by default.
        full: merge all batches of each shard into one.
        only_due: maintain only shards for which it is worth a rollup, as a process that looks again soon does.
        leaks_older_than_ms: look for leaks of that age and delete them; `None` does not look.
        delete_of_no_shard: delete also old objects of shards that this Consensus does not know.
        dry_run: change nothing, only look.
        timeout: seconds for each shard.
    """

    shard_ids: tuple[str, ...] | None = None
    full: bool = False
    only_due: bool = False
    leaks_older_than_ms: int | None = DAY_MS
    delete_of_no_shard: bool = False
    dry_run: bool = False
    timeout: float | None = None


def keep_up(
    client: PersistClient,
    wanted: Wanted,
    *,
    done: Upkeep | None = None,
    protected: Callable[[], Collection[str]] | None = None,
    stopped: Callable[[], bool] = lambda: False,
    on_leak: Callable[[Leak], None] = lambda _: None,
) -> Upkeep:
    """One round of upkeep.

    Args:
        client: of the location.
        wanted: what is to be done.
        done: what to fill; a new one by default.
        protected: as `PersistClient.find_leaks` takes it.
        stopped: asked between shards and between leaks; once true the round ends.
        on_leak: told each leak.

    Raises:
        LocationError: the shards of the location cannot be listed.
    """
    done = Upkeep() if done is None else done
    shard_ids = _shards(client) if wanted.shard_ids is None else wanted.shard_ids
    for shard_id in shard_ids:
        if stopped():
            return done
        with _reported(done, shard_id):
            _maintain(client, shard_id, wanted, done)
    if wanted.leaks_older_than_ms is not None and not stopped():
        with _reported(done, "the search for leaks"):
            _leaks(client, wanted, done, protected, stopped, on_leak)
    return done


def _shards(client: PersistClient) -> Sequence[str]:
    return shard_keys(client.consensus.list_keys())


@contextlib.contextmanager
def _reported(done: Upkeep, shard_id: str) -> Iterator[None]:
    try:
        yield
    except SqlError as failure:
        done.failures.append(
            Failure(shard_id=shard_id, error=failure.message, hint=failure.hint or "")
        )
    except Exception as failure:
        _log.exception("shard %s: upkeep failed", shard_id)
        error = f"{type(failure).__name__}: {failure}"
        done.failures.append(Failure(shard_id=shard_id, error=error))


def _maintain(client: PersistClient, shard_id: str, wanted: Wanted, done: Upkeep) -> None:
    state = client.inspect(shard_id, timeout=wanted.timeout)
    if state is None:
        raise MissingPart(f"shard {shard_id} does not exist in this Consensus store")
    done.shards += 1
    live = client.swept(state)
    collectable = _collectable(live)
    done.collectable += collectable
    # Of a shard that nobody changes any more nobody else collects the little that is left.
    quiet = collectable > 0 and client.unchanged_ms(state) >= _QUIET_MS
    is_due = due(state, client.settings) or quiet
    done.due += is_due
    if wanted.dry_run or (wanted.only_due and not is_due):
        return
    if len(live.readers) < len(state.readers):
        # Leases run out only with a change of the state, of which there was none.
        client.sweep(shard_id, timeout=wanted.timeout)
    report = client.maintain(
        shard_id, full=wanted.full, all_due=quiet or not wanted.only_due, timeout=wanted.timeout
    )
    done.merges += report.merges
    done.batches_merged += report.batches_merged
    done.rollups += report.rollups
    done.objects_deleted += report.objects_deleted
    done.entries_truncated += report.entries_truncated


def _collectable(state: ShardState) -> int:
    """How many objects of garbage no reader holds."""
    hold = state.seqno_since
    return sum(len(keys) for seqno, keys in state.garbage.items() if seqno <= hold)


def _leaks(
    client: PersistClient,
    wanted: Wanted,
    done: Upkeep,
    protected: Callable[[], Collection[str]] | None,
    stopped: Callable[[], bool],
    on_leak: Callable[[Leak], None],
) -> None:
    assert wanted.leaks_older_than_ms is not None
    found = client.find_leaks(
        older_than_ms=wanted.leaks_older_than_ms,
        shard_ids=wanted.shard_ids,
        protected=protected,
        delete=not wanted.dry_run,
        delete_of_no_shard=wanted.delete_of_no_shard,
        timeout=wanted.timeout,
    )
    for leak in found:
        if leak.deleted:
            done.leaks_deleted += 1
            done.leaked_bytes_deleted += leak.bytes
        else:
            done.leaks_left += 1
            done.leaked_bytes_left += leak.bytes
        on_leak(leak)
        if stopped():
            return
