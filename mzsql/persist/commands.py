"""The commands of the shard's state machine, as values: what each asks for, and what it answers.

Promise: frozen, and complete in themselves: a command that was not answered can be tried again as it is. What one does to a state is
said in `mzsql.persist.deciding`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import msgspec

from mzsql.persist.batch import Part
from mzsql.persist.state import StateDiff
from mzsql.repr.frontier import Frontier, Timestamp


class CompareAndAppend(msgspec.Struct, frozen=True):
    """Add ``parts`` with times in ``[lower, upper)`` iff the shard's upper is ``lower``. Result: `None`.

    The first append registers the writer; one that ``registered`` before and is not in the state has expired.
    """

    writer_id: str
    token: str
    lower: Frontier
    upper: Frontier
    parts: tuple[Part, ...]
    lease_ms: int
    inline_total_bytes: int
    purpose: str = ""
    registered: bool = False


class RenewWriter(msgspec.Struct, frozen=True):
    """Renew a writer's lease, and those of ``also``, other handles of the same process. Nothing for a writer that never appended."""

    writer_id: str
    also: tuple[str, ...] = ()


class ExpireWriter(msgspec.Struct, frozen=True):
    """Forget a writer."""

    writer_id: str


class RegisterReader(msgspec.Struct, frozen=True):
    """Add a leased reader at the shard's since. Result: its `LeasedReader`."""

    reader_id: str
    lease_ms: int
    purpose: str = ""


class DowngradeSince(msgspec.Struct, frozen=True):
    """Move a leased reader to a later since and seqno hold; with the present ones, a heartbeat.

    The leases of ``also``, other handles of the same process, are renewed along with it.
    """

    reader_id: str
    since: Frontier
    seqno_hold: int
    also: tuple[str, ...] = ()


class ExpireReader(msgspec.Struct, frozen=True):
    """Forget a leased reader."""

    reader_id: str


class RegisterCritical(msgspec.Struct, frozen=True):
    """Add a critical hold at the shard's since, or take over the one there is. Result: its `CriticalHold`.

    With ``expected_token`` it is only taken over from the owner of that token (or had with ``token`` already).
    """

    reader_id: str
    token: str
    purpose: str = ""
    expected_token: str | None = None


class DowngradeCritical(msgspec.Struct, frozen=True):
    """Move a critical hold to a later since, iff the token is the hold's; with the present since, ask whether it still is."""

    reader_id: str
    token: str
    since: Frontier


class ReleaseCritical(msgspec.Struct, frozen=True):
    """Forget a critical hold, iff the token is the hold's."""

    reader_id: str
    token: str


class ApplyMerge(msgspec.Struct, frozen=True):
    """Replace neighbouring batches by their merge, which is consolidated. Result: whether it is part of the shard's history.

    ``diffs`` is the sum of its diffs.
    """

    inputs: tuple[int, ...]
    lower: Timestamp
    upper: Frontier
    since: Timestamp
    parts: tuple[Part, ...]
    diffs: int | None = None


class AddRollup(msgspec.Struct, frozen=True):
    """Name the object that holds the state at ``seqno``. Result: whether it is named now."""

    seqno: int
    key: str


class Collect(msgspec.Struct, frozen=True):
    """Forget garbage and rollups whose objects have been deleted."""

    garbage: tuple[int, ...]
    rollups: tuple[int, ...]


class Sweep(msgspec.Struct, frozen=True):
    """Expire the handles whose leases have run out, and end an ending shard that nobody holds any more."""


class Finalize(msgspec.Struct, frozen=True):
    """Empty both frontiers, unless a reader other than ``besides`` holds them, which is an error."""

    besides: tuple[str, ...] = ()


class Retire(msgspec.Struct, frozen=True):
    """Empty both frontiers, or have that happen once no reader holds them any more. Result: who holds them now.

    The readers ``besides`` are expired: whoever registered them knows that nobody reads with them any more.
    """

    besides: tuple[str, ...] = ()


Command: TypeAlias = (
    CompareAndAppend
    | RenewWriter
    | ExpireWriter
    | RegisterReader
    | DowngradeSince
    | ExpireReader
    | RegisterCritical
    | DowngradeCritical
    | ReleaseCritical
    | ApplyMerge
    | AddRollup
    | Collect
    | Sweep
    | Finalize
    | Retire
)


class InlineOverflow(Exception):
    """The batch would bring more inline bytes than the state may carry.

    ``doubtful`` is the seqno that the first attempt would have, or has, which may have been committed all the same, if there was one.
    """

    doubtful: int | None = None


class Transition(NamedTuple):
    """What a command does: its diff (`None`: nothing to commit) and its result."""

    diff: StateDiff | None
    result: Any = None
