"""The commands of the shard's state machine, as values: what each asks for, and its result.

Promise: frozen and self-contained, so that a command without an answer can be sent again as it is.
`mzsql.persist.deciding` says what each does to a state.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import msgspec

from mzsql.persist.batch import Part
from mzsql.persist.state import StateDiff
from mzsql.repr.frontier import Frontier, Timestamp


class CompareAndAppend(msgspec.Struct, frozen=True):
    """Add ``parts`` with times in ``[lower, upper)`` if the shard's upper is ``lower``. Result: `None`.

    The first append registers the writer. ``registered`` says that it was registered before: if it is not in the
    state, it has expired. ``inline_total_bytes`` is the most that the state may carry inline.
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
    """Renew a writer's lease, and those of ``also``, handles of the same process. Does nothing for a writer that never
    appended.
    """

    writer_id: str
    also: tuple[str, ...] = ()


class ExpireWriter(msgspec.Struct, frozen=True):
    """Remove a writer from the state."""

    writer_id: str


class RegisterReader(msgspec.Struct, frozen=True):
    """Add a leased reader at the shard's since. Result: its `LeasedReader`."""

    reader_id: str
    lease_ms: int
    purpose: str = ""


class DowngradeSince(msgspec.Struct, frozen=True):
    """Move a leased reader to a later since and seqno hold; with the present ones, only renew its lease.

    The leases of ``also``, other handles of the same process, are renewed along with it.
    """

    reader_id: str
    since: Frontier
    seqno_hold: int
    also: tuple[str, ...] = ()


class ExpireReader(msgspec.Struct, frozen=True):
    """Remove a leased reader from the state."""

    reader_id: str


class RegisterCritical(msgspec.Struct, frozen=True):
    """Add a critical hold at the shard's since, or take over the existing one. Result: its `CriticalHold`.

    With ``expected_token`` it is only taken over from the owner of that token (or from ``token`` itself, in a
    retry).
    """

    reader_id: str
    token: str
    purpose: str = ""
    expected_token: str | None = None


class DowngradeCritical(msgspec.Struct, frozen=True):
    """Move a critical hold to a later since, if the token is the hold's; the present since only checks that it is."""

    reader_id: str
    token: str
    since: Frontier


class ReleaseCritical(msgspec.Struct, frozen=True):
    """Remove a critical hold, if the token is the hold's."""

    reader_id: str
    token: str


class ApplyMerge(msgspec.Struct, frozen=True):
    """Replace adjacent batches by their merge, which is consolidated. Result: whether the merge is part of the shard's
    history.

    ``diffs`` is the sum of the merge's diffs.
    """

    inputs: tuple[int, ...]
    lower: Timestamp
    upper: Frontier
    since: Timestamp
    parts: tuple[Part, ...]
    diffs: int | None = None


class AddRollup(msgspec.Struct, frozen=True):
    """Record the key of the object that holds the state at ``seqno``. Result: whether the state names it now."""

    seqno: int
    key: str


class Collect(msgspec.Struct, frozen=True):
    """Remove garbage and rollups from the state whose objects have been deleted."""

    garbage: tuple[int, ...]
    rollups: tuple[int, ...]


class Sweep(msgspec.Struct, frozen=True):
    """Expire the handles whose leases have run out, and end an ending shard that nobody holds any more."""


class Finalize(msgspec.Struct, frozen=True):
    """Empty both frontiers. Refused if a reader other than ``besides`` holds the shard."""

    besides: tuple[str, ...] = ()


class Retire(msgspec.Struct, frozen=True):
    """Empty both frontiers, now or as soon as no reader holds the shard. Result: who holds it now.

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

    ``doubtful`` is the seqno of the first attempt, if there was one, which may have been committed nevertheless.
    """

    doubtful: int | None = None


class Transition(NamedTuple):
    """What a command does: its diff (`None`: nothing to commit) and its result."""

    diff: StateDiff | None
    result: Any = None
