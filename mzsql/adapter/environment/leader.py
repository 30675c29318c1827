"""Leading: one process at a time runs the controllers (docs/architecture.md, decision 8).

Promise: the right to lead is a token in the catalog, under a lease of `LEASE_MS`. A leader that is killed or stopped is replaced: at
once where it was a process of this machine that is no longer there, else when another process that waits to lead has seen no sign of
life for the length of the lease, by its own monotonic clock, so that clocks that differ take nothing from a leader that lives. Losing
the lease stops the controllers, never the sessions. Opening takes nothing away from anyone: two leaders that overlap for a moment
write the same thing, and the shards' compare_and_append keeps one of each.

Whoever waits to lead says so in the catalog, and the leader renews its lease only while somebody does: one that is alone writes next
to nothing. The trade-off: where a leader died on another machine while nobody waited, the first to come waits out the lease.
"""

from __future__ import annotations

import os
import socket
import uuid

import msgspec

from mzsql.catalog.change import NOTHING, Change
from mzsql.catalog.durable import DurableCatalog
from mzsql.catalog.objects import Lease, Standby
from mzsql.catalog.state import CatalogState
from mzsql.persist import Clock

#: So long after its last sign of life a leader is taken for dead, in milliseconds.
LEASE_MS = 30_000
#: The lease of a leader that nobody waits to replace. Either is renewed after two thirds of it.
ALONE_MS = 3_600_000


def this_process() -> str:
    """Who leads, for messages and for finding out whether it is still there: ``host pid``."""
    return f"{socket.gethostname()} {os.getpid()}"


def is_here(who: str) -> bool:
    """Whether ``who`` is, or was, a process of this machine."""
    return who.rpartition(" ")[0] == socket.gethostname()


def is_gone(who: str) -> bool:
    """Whether ``who`` surely runs no more: a process of this machine that is not there."""
    pid = who.rpartition(" ")[2]
    if not is_here(who) or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


def seems_alive(lease: Lease | None, now_ms: int) -> bool:
    """Whether somebody seems to lead, for what people are told: a leader that nobody waits for may have died unnoticed elsewhere."""
    return lease is not None and lease.expires_at > now_ms and not is_gone(lease.who)


class Leadership:
    """This process's claim. Not thread-safe: one thread asks and renews.

    Args:
        catalog: the environment's.
        clock: of its two times the monotonic one measures leases; the wall clock's is what people are told.
        generation: of the deployment that this process is of.
        build: the program's version, for replicas of other versions to see.
    """

    def __init__(
        self, catalog: DurableCatalog, clock: Clock, *, generation: int = 0, build: str = ""
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._generation = generation
        self._build = build
        self.token = str(uuid.uuid4())
        # When this process renewed its lease last, and for how long, on the monotonic clock in seconds.
        self._renewed = 0.0
        self._renewed_for = 0
        # The leader's last sign of life, and since when it has been known here while this process was waiting in the catalog.
        self._watched: Lease | None = None
        self._watched_since = 0.0
        # Since when those that wait are known here, by their tokens.
        self._met: dict[str, float] = {}

    def hold(self, state: CatalogState) -> bool:
        """Take or renew the lease where that is possible and due; whether this process leads now.

        Args:
            state: the catalog as seen lately; Consensus is asked only where the lease is to be taken or renewed, or to say that this
                process waits for it.

        Raises:
            Fenced: a higher deploy generation was promoted.
        """
        lease = state.lease
        if lease is not None and lease.token == self.token:
            return self._renew() if self._renewal_due(state) else True
        if lease is None or self._is_free(lease) or self._seems_dead(state, lease):
            return self._take(lease)
        if self.token not in state.standbys:
            self._stand_by()
        return False

    # --- a leader -----------------------------------------------------------------------------

    def _awaited(self, state: CatalogState) -> bool:
        """Whether somebody waits to lead."""
        return any(
            token != self.token and not self._left(token, standby)
            for token, standby in state.standbys.items()
        )

    def _left(self, token: str, standby: Standby) -> bool:
        """Whether what waited need be reckoned with no more; one that lives says again that it waits when its entry is gone.

        Its age is counted here, from when this process met it: what its own wall clock says may be hours off.
        """
        now = self._clock.monotonic()
        return (now - self._met.setdefault(token, now)) * 1000 > ALONE_MS or is_gone(standby.who)

    def _renewal_due(self, state: CatalogState) -> bool:
        wanted = LEASE_MS if self._awaited(state) else ALONE_MS
        lasting = min(wanted, self._renewed_for)
        return (self._clock.monotonic() - self._renewed) * 1000 >= lasting * 2 // 3

    def _renew(self) -> bool:
        def renewed(state: CatalogState) -> tuple[Change, int]:
            if state.lease is None or state.lease.token != self.token:
                return NOTHING, 0
            return self._leased(state)

        return self._done(self._catalog.transact(renewed))

    def _leased(self, state: CatalogState) -> tuple[Change, int]:
        """This process as the leader, and for how many milliseconds; what no longer waits goes with it."""
        left = [t for t, one in state.standbys.items() if t == self.token or self._left(t, one)]
        lasting = LEASE_MS if set(state.standbys) - set(left) else ALONE_MS
        expires_at = self._clock.now_ms() + lasting
        lease = Lease(self.token, expires_at, self._generation, this_process(), self._build)
        return Change(standbys=dict.fromkeys(left), lease=lease), lasting

    def _done(self, lasting: int) -> bool:
        self._renewed, self._renewed_for = self._clock.monotonic(), lasting
        self._watched = None
        self._met = {t: at for t, at in self._met.items() if t in self._catalog.state.standbys}
        return lasting > 0

    # --- one that waits to lead ---------------------------------------------------------------

    def _is_free(self, lease: Lease) -> bool:
        """Whether it is known at once that nobody holds the lease: given back, of a process that is gone, or of an older deployment."""
        return lease.expires_at == 0 or lease.generation < self._generation or is_gone(lease.who)

    def _seems_dead(self, state: CatalogState, lease: Lease) -> bool:
        """Whether the leader knows that somebody waits, and yet has given no sign of life for so long as the lease."""
        now = self._clock.monotonic()
        if self.token not in state.standbys or self._watched != lease:
            self._watched, self._watched_since = lease, now
        return (now - self._watched_since) * 1000 >= LEASE_MS

    def _take(self, seen: Lease | None) -> bool:
        def taken(state: CatalogState) -> tuple[Change, int]:
            # Whatever was found out is about the lease as it was seen: another one, or a sign of life, starts it all over.
            return self._leased(state) if state.lease == seen else (NOTHING, 0)

        return self._done(self._catalog.transact(taken))

    def _stand_by(self) -> None:
        standby = Standby(this_process(), self._clock.now_ms())
        waiting = Change(standbys={self.token: standby})
        self._catalog.transact(lambda _: (waiting, None))

    def release(self) -> None:
        """Give the lease back, or the waiting for it up. Idempotent."""

        def give_up(state: CatalogState) -> tuple[Change, None]:
            change = NOTHING
            if self.token in state.standbys:
                change |= Change(standbys={self.token: None})
            held = state.lease
            if held is not None and held.token == self.token:
                change |= Change(lease=msgspec.structs.replace(held, expires_at=0))
            return change, None

        self._catalog.transact(give_up)
