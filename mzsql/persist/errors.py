"""The errors of shards. A usage error is raised before anything is done and leaves the shard's state as it is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mzsql.location.errors import LocationError, UsageError
from mzsql.repr.errors import DataError, DatatypeMismatch, EnvironmentRefused, NotReadable
from mzsql.repr.frontier import Frontier, show


class UpperMismatch(UsageError):
    """A compare_and_append whose expected upper is not the shard's; ``current`` is the shard's upper."""

    sqlstate = "40001"

    def __init__(self, shard_id: str, expected: Frontier, current: Frontier) -> None:
        self.expected = expected
        self.current = current
        super().__init__(
            f"shard {shard_id}: expected the upper to be {show(expected)}, but it is {show(current)}"
        )


class InvalidBounds(UsageError):
    """Frontiers that do not fit each other, or times outside of them."""


class SinceViolation(UsageError, NotReadable):
    """A read at a time before ``since``, where compaction may have merged updates of different times."""

    sqlstate = "57014"

    def __init__(self, shard_id: str, as_of: int, since: Frontier) -> None:
        self.as_of = as_of
        self.since = since
        super().__init__(
            f"shard {shard_id}: cannot read at {as_of}, since is {show(since)}",
            hint="Read at a later time, or hold since back with a reader before it passes.",
        )


class ReadTimeout(NotReadable):
    """A read whose time was not complete before its timeout; ``upper`` is the shard's upper."""

    def __init__(self, shard_id: str, as_of: int, upper: Frontier, timeout: float) -> None:
        self.as_of = as_of
        self.upper = upper
        super().__init__(
            f"shard {shard_id}: time {as_of} was not complete within {timeout:g} s, upper is {show(upper)}"
        )


class ExpiredHandle(UsageError):
    """A handle that was closed, or whose lease ran out; open a new one.

    ``unseen_ms`` says for how long the process that expired it had seen no renewal of its lease, if that is known.
    """

    sqlstate = "55000"

    def __init__(
        self,
        message: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        unseen_ms: int | None = None,
    ) -> None:
        self.unseen_ms = unseen_ms
        super().__init__(message, detail=detail, hint=hint)


#: The `Holder.kind` of a holder without a lease.
CRITICAL = "critical reader"


class Holder(msgspec.Struct, frozen=True):
    """A holder of a shard's since: a reader under a lease (kind ``reader``) or without one (`CRITICAL`), which has the
    ``token`` of its owner.
    """

    kind: str
    id: str
    since: Frontier
    purpose: str = ""
    token: str | None = None

    def __str__(self) -> str:
        purpose = f", {self.purpose}" if self.purpose else ""
        return f"{self.kind} {self.id} (since {show(self.since)}{purpose})"


class ShardHeld(UsageError):
    """A shard that cannot end because ``holders`` may still read it; nothing was changed."""

    sqlstate = "55006"

    def __init__(self, shard_id: str, holders: Sequence[Holder]) -> None:
        self.holders = tuple(holders)
        super().__init__(
            f"shard {shard_id} cannot be finalized: it is held by {', '.join(map(str, holders))}",
            hint="Have them release it and try again; `PersistClient.retire` has it end by itself once they have.",
        )


class SchemaMismatch(UsageError, DatatypeMismatch):
    """Updates, or a program's definition of a shard, that do not fit the shard's schema or key."""

    sqlstate = "42804"


class ForeignBlob(UsageError):
    """A batch or object that belongs to another shard."""


class DuplicatePart(UsageError):
    """An object that is part of the shard already, or given twice: its updates would be counted twice."""

    sqlstate = "42710"


class MissingPart(LocationError):
    """An object that a shard's state names is not in the Blob store."""

    sqlstate = "58P01"


class CorruptPart(LocationError, DataError):
    """An object or log entry whose bytes do not match their checksum, or cannot be decoded."""

    sqlstate = "XX001"


class NewerVersion(EnvironmentRefused):
    """A shard written by a newer version of mzsql, which this one must not touch."""


class ShardFinalized(ExpiredHandle):
    """A shard that has ended (both frontiers are empty): it can neither be read nor written any more."""
