"""The handles of a shard, as what keeps them alive knows them."""

from __future__ import annotations

from typing import Protocol

from mzsql.persist.clock import Deadline


class Leased(Protocol):
    """What has a lease, as one that renews others along with its own knows it."""

    @property
    def handle_id(self) -> str:
        """Its name in the shard's state."""

    def renewable(self) -> bool:
        """Whether enough of the lease has passed for a renewal beside another one."""

    def renewed(self, began: float) -> None:
        """It was renewed by a change that began then, on the monotonic clock."""


class Handle(Protocol):
    """A handle, as one that renews each by itself knows it."""

    @property
    def shard_id(self) -> str:
        """The shard."""

    def heartbeat_due(self) -> bool:
        """Whether enough of the lease has passed for a renewal of its own."""

    def heartbeat(self, *, timeout: float | None = None) -> None:
        """Renew the lease; ExpiredHandle where it ran out."""

    def expire(self, *, timeout: float | None = None) -> None:
        """Give the handle up. Idempotent."""


class Reader(Handle, Protocol):
    """A reader."""

    reader_id: str

    @property
    def lease(self) -> Leased:
        """What holds since back."""

    def let_go(self, deadline: Deadline) -> None:
        """Move the hold on objects forward when it is behind; nothing when the handle is expired."""


class Writer(Handle, Leased, Protocol):
    """A writer."""

    writer_id: str
