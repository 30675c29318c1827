"""Maintenance of many shards, in a process of its own or occasionally: compaction, rollups, collection, remains of
ended shards, leaks.

Promise: a failure of one shard is reported and does not stop the maintenance of others; a round may be stopped
between any two shards; any number of such processes, and of clients that do their own maintenance, may work on a
location at the same time. With ``dry_run`` nothing is changed.
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
from mzsql.persist.shard_maintenance import due
from mzsql.persist.state import ShardState
from mzsql.repr.errors import SqlError

_log = logging.getLogger(__name__)

_QUIET_MS = 3_600_000
"""All garbage, however little, is collected in a shard that was not changed for this long."""


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error in the maintenance of a shard, or in the search for leaks."""

    shard_id: str
    error: str
    hint: str = ""


class MaintenanceReport(msgspec.Struct, kw_only=True):
    """What rounds of maintenance did, or in a dry run would have considered; mutable, filled as they proceed.

    ``due`` is the number of shards worth maintaining, ``collectable`` the number of garbage objects that nobody held
    any more. Leaks that were found and not deleted are in ``leaks_left``.
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
        shard_ids: the shards; all of the location by default.
        full: merge all batches of each shard into one.
        only_due: maintain only shards with enough to do to be worth a rollup, as in a process that looks again soon.
        leaks_older_than_ms: find and delete leaks of at least this age; `None` does not look for leaks.
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


def maintain_location(
    client: PersistClient,
    wanted: Wanted,
    *,
    done: MaintenanceReport | None = None,
    protected: Callable[[], Collection[str]] | None = None,
    stopped: Callable[[], bool] = lambda: False,
    on_leak: Callable[[Leak], None] = lambda _: None,
) -> MaintenanceReport:
    """Do one round of maintenance; return what it did.

    Args:
        client: the location's client.
        wanted: what to do.
        done: filled with what was done; a new one by default.
        protected: as in `PersistClient.find_leaks`.
        stopped: asked between shards and between leaks; once it returns true, the round ends.
        on_leak: called with each leak.

    Raises:
        LocationError: the shards of the location cannot be listed.
    """
    done = MaintenanceReport() if done is None else done
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
def _reported(done: MaintenanceReport, shard_id: str) -> Iterator[None]:
    try:
        yield
    except SqlError as failure:
        done.failures.append(
            Failure(shard_id=shard_id, error=failure.message, hint=failure.hint or "")
        )
    except Exception as failure:
        _log.exception("shard %s: maintenance failed", shard_id)
        error = f"{type(failure).__name__}: {failure}"
        done.failures.append(Failure(shard_id=shard_id, error=error))


def _maintain(
    client: PersistClient, shard_id: str, wanted: Wanted, done: MaintenanceReport
) -> None:
    state = client.inspect(shard_id, timeout=wanted.timeout)
    if state is None:
        raise MissingPart(f"shard {shard_id} does not exist in this Consensus store")
    done.shards += 1
    live = client.swept(state)
    collectable = _collectable(live)
    done.collectable += collectable
    # If nobody changes a shard any more, no other process collects the little garbage that is left.
    quiet = collectable > 0 and client.unchanged_ms(state) >= _QUIET_MS
    is_due = due(state, client.settings) or quiet
    done.due += is_due
    if wanted.dry_run or (wanted.only_due and not is_due):
        return
    if len(live.readers) < len(state.readers):
        # Expired leases are removed only by a command, and nobody has sent one.
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
    """Return the number of garbage objects that no reader holds."""
    hold = state.seqno_since
    return sum(len(keys) for seqno, keys in state.garbage.items() if seqno <= hold)


def _leaks(
    client: PersistClient,
    wanted: Wanted,
    done: MaintenanceReport,
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
