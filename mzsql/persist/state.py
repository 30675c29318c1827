"""The state of a shard, and the diff that records one change of it.

Promise: everything here is pure. A `ShardState` is changed only by `transitions.apply_diff`, and the size of a
`StateDiff` is proportional to the change, so the log in Consensus and any process that follows it arrive at equal
states. Batches in the trace are sorted by ``lower`` and do not overlap; an interval that no batch covers holds no
updates, so advancing the upper alone adds nothing to the trace. Source: Materialize's persist design, its state
machine and its incremental state as keyed collections.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from mzsql.persist.batch import BlobPart, InlinePart, KeySpec, Part
from mzsql.repr.frontier import Frontier, Timestamp

EXPIRED_KEPT = 256
"""How many readers and writers whose leases ran out a shard remembers by id."""


class TraceBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch of the shard.

    Attributes:
        id: names the batch within the shard; never reused.
        lower: no update is before it.
        upper: all updates are before it.
        since: compaction has advanced the updates' times at least to it.
        parts: the objects or inline bytes that hold the updates.
        consolidated: compaction made it: no two updates have the same row and time, and no diff is zero.
        diffs: the sum of all diffs, if known: about the number of rows that remain once all times are the same.
    """

    id: int
    lower: Timestamp
    upper: Frontier
    since: Timestamp
    parts: tuple[Part, ...]
    consolidated: bool = False
    diffs: int | None = None

    @property
    def rows(self) -> int:
        """The number of updates."""
        return sum(part.rows for part in self.parts)

    @property
    def size(self) -> int:
        """The number of encoded bytes."""
        return sum(part.size for part in self.parts)

    @property
    def blob_keys(self) -> tuple[str, ...]:
        """The keys of the objects in Blob that hold its parts."""
        return tuple(part.key for part in self.parts if isinstance(part, BlobPart))

    @property
    def inline_size(self) -> int:
        """The number of bytes it takes in the state."""
        return sum(part.size for part in self.parts if isinstance(part, InlinePart))


class Writer(msgspec.Struct, frozen=True, array_like=True):
    """A writer; the token and upper of its last append let a retry recognise that it was committed.

    ``heartbeat_ms`` is the shard's wall time at its last renewal; no two renewals have the same. It is only compared
    for equality (`mzsql.persist.watch`) and shown; no duration is computed from it, because it is the time of
    whichever clock renewed it.
    """

    heartbeat_ms: int
    lease_ms: int
    token: str
    upper: Frontier
    purpose: str = ""


class LeasedReader(msgspec.Struct, frozen=True, array_like=True):
    """A reader with a lease; it may read the parts of any state from ``seqno_hold`` on. ``heartbeat_ms`` is as a
    `Writer`'s.
    """

    since: Frontier
    seqno_hold: int
    heartbeat_ms: int
    lease_ms: int
    purpose: str = ""


class Expired(msgspec.Struct, frozen=True, array_like=True):
    """A reader or writer that the change ``seqno`` expired, because its process had seen no renewal for ``unseen_ms``."""

    seqno: int
    unseen_ms: int
    purpose: str = ""


class CriticalHold(msgspec.Struct, frozen=True, array_like=True):
    """A hold on since without a lease, owned by whoever knows the token."""

    since: Frontier
    token: str
    purpose: str = ""


class ShardState(msgspec.Struct, frozen=True, kw_only=True):
    """All metadata of one shard at one sequence number.

    ``garbage`` maps the seqno at which objects left the state to their keys: they are deleted once no reader's
    ``seqno_hold`` is below it. ``rollups`` maps the seqno of a state that was written whole to its object's key.
    ``applier_version`` is the newest version of mzsql that ever changed the shard (`mzsql.persist.versions`); empty
    until a version that knows the field has.

    ``expired`` are the readers and writers whose leases ran out, so that they are told so; the latest `EXPIRED_KEPT`
    are kept, and ``forgotten`` is the seqno of the latest change that expired one of the others. An ``ending`` shard
    takes no new readers and ends with its last one.
    """

    shard_id: str
    seqno: int
    walltime_ms: int
    schema: bytes
    key: KeySpec | None = None
    since: Frontier = 0
    upper: Frontier = 0
    next_batch: int = 0
    trace: tuple[TraceBatch, ...] = ()
    readers: dict[str, LeasedReader] = {}
    critical: dict[str, CriticalHold] = {}
    writers: dict[str, Writer] = {}
    rollups: dict[int, str] = {}
    garbage: dict[int, tuple[str, ...]] = {}
    applier_version: str = ""
    expired: dict[str, Expired] = {}
    forgotten: int = 0
    ending: bool = False

    @property
    def finalized(self) -> bool:
        """Whether both frontiers are empty: the shard has ended, and only this tombstone remains."""
        return self.since is None and self.upper is None

    @property
    def inline_size(self) -> int:
        """The number of bytes of batches that the state carries inline."""
        return sum(batch.inline_size for batch in self.trace)

    @property
    def seqno_since(self) -> int:
        """The earliest state whose parts some reader may still read."""
        return min((reader.seqno_hold for reader in self.readers.values()), default=self.seqno)

    @property
    def latest_rollup(self) -> int:
        """The seqno of the newest rollup; 0 if there is none, because the log's first entry carries the whole state."""
        return max(self.rollups, default=0)

    def may_have_expired(self, handle_id: str, after: int = 0) -> bool:
        """Whether a handle that is not in the state was, or may have been, expired by a change after ``after``."""
        found = self.expired.get(handle_id)
        return self.forgotten > after if found is None else found.seqno > after


class StateDiff(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One change of a state; `UNSET` leaves a field as it is, and in the maps `None` removes the key."""

    seqno: int
    walltime_ms: int
    since: Frontier | UnsetType = UNSET
    upper: Frontier | UnsetType = UNSET
    added: tuple[TraceBatch, ...] = ()
    removed: tuple[int, ...] = ()
    readers: dict[str, LeasedReader | None] = {}
    critical: dict[str, CriticalHold | None] = {}
    writers: dict[str, Writer | None] = {}
    rollups: dict[int, str | None] = {}
    garbage: tuple[str, ...] = ()
    collected: tuple[int, ...] = ()
    applier_version: str | UnsetType = UNSET
    expired: dict[str, Expired | None] = {}
    ending: bool | UnsetType = UNSET
