"""Leading: one process at a time runs the controllers (architecture, decision 8).

Promise: the right to lead is a token in the catalog with a lease of seconds; a process takes over when the lease has lapsed, or at
once when the holder was a process of this machine that is no longer there. Losing it stops the controllers, never the sessions; a
higher deploy generation cannot be outbid by a lower one. Opening takes nothing away from anyone: two leaders that overlap for a
moment write the same thing, and the shards' compare_and_append keeps one of each.
"""

from __future__ import annotations

import os
import socket
import uuid

import msgspec

from mzsql.adapter import catalog as cat
from mzsql.adapter.catalog import CatalogState, DurableCatalog, Lease
from mzsql.adapter.durable_map import Change
from mzsql.persist import Clock
from mzsql.repr.errors import Fenced

LEASE_MS = 30_000


def this_process() -> str:
    """Who leads, for messages and for finding out whether it is still there: ``host pid``."""
    return f"{socket.gethostname()} {os.getpid()}"


def is_gone(who: str) -> bool:
    """Whether ``who`` surely runs no more: a process of this machine that is not there."""
    host, _, pid = who.rpartition(" ")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


class Leadership:
    """This process's claim. Not thread-safe: one thread asks and renews."""

    def __init__(self, catalog: DurableCatalog, clock: Clock, *, generation: int = 0) -> None:
        self._catalog = catalog
        self._clock = clock
        self._generation = generation
        self.token = str(uuid.uuid4())
        self._renew_at = 0

    def hold(self, state: CatalogState) -> bool:
        """Take or renew the lease where that is possible and due; whether this process leads now.

        Args:
            state: the catalog as seen lately; Consensus is asked only where the lease is to be taken or renewed.

        Raises:
            Fenced: a newer deployment has led.
        """
        now = self._clock.now_ms()
        lease = state.lease
        if lease is not None and lease.token == self.token and now < self._renew_at:
            return True
        gone = lease is not None and is_gone(lease.who)
        seen = None if lease is None else lease.token

        def claim(state: CatalogState) -> tuple[Change, bool]:
            held = state.lease
            if held is not None and held.generation > self._generation:
                raise Fenced(
                    f"fenced by a newer deployment: generation {held.generation} at {held.who}"
                )
            mine = held is not None and held.token == self.token
            free = (
                held is None or mine or held.expires_at <= now or held.generation < self._generation
            )
            if not free and not (gone and held is not None and held.token == seen):
                return {}, False
            lease = Lease(self.token, now + LEASE_MS, self._generation, this_process())
            return dict([cat.put("lease", "leader", lease)]), True

        leads = self._catalog.transact(claim)
        self._renew_at = now + LEASE_MS * 2 // 3 if leads else 0
        return leads

    def release(self) -> None:
        """Give the lease back, if it is this process's. Idempotent."""

        def give_up(state: CatalogState) -> tuple[Change, None]:
            held = state.lease
            if held is None or held.token != self.token:
                return {}, None
            return dict(
                [cat.put("lease", "leader", msgspec.structs.replace(held, expires_at=0))]
            ), None

        self._catalog.transact(give_up)
