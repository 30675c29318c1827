"""The protocols of a shard's handles, as the code that keeps their leases sees them."""

from __future__ import annotations

from typing import Protocol

from mzsql.persist.clock import Deadline


class Leased(Protocol):
    """Something with a lease that another handle's renewal can renew with it."""

    @property
    def handle_id(self) -> str:
        """Its id in the shard's state."""

    def renewable(self) -> bool:
        """Whether enough of the lease has passed to renew it along with another one."""

    def renewed(self, began: float) -> None:
        """Note that it was renewed by a change that began at ``began`` (monotonic seconds)."""


class Handle(Protocol):
    """A handle whose lease is renewed by itself."""

    @property
    def shard_id(self) -> str:
        """The shard's id."""

    def heartbeat_due(self) -> bool:
        """Whether enough of the lease has passed for a renewal of its own."""

    def heartbeat(self, *, timeout: float | None = None) -> None:
        """Renew the lease.

        Raises:
            ExpiredHandle: it ran out.
        """

    def expire(self, *, timeout: float | None = None) -> None:
        """Close the handle. Idempotent."""


class Reader(Handle, Protocol):
    """A reader's handle."""

    reader_id: str

    @property
    def lease(self) -> Leased:
        """The lease that holds since back."""

    def let_go(self, deadline: Deadline) -> None:
        """Release objects that are held but no longer read; does nothing if the handle is expired."""


class Writer(Handle, Leased, Protocol):
    """A writer's handle, which is its own lease."""

    writer_id: str
