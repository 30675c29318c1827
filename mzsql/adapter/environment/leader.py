"""Leadership: one process at a time runs the controllers (docs/architecture.md, decision 8).

Promise: the right to lead is a token in the catalog with a lease of `LEASE_MS`. A leader that died is replaced: at once
if it was a process of this machine that no longer exists, else when a standby has seen no renewal for the length of the
lease, by the standby's own monotonic clock. So differing wall clocks take nothing from a leader that is alive. Losing
the lease stops the controllers, never the sessions. Opening an environment takes nothing away from anyone. Two leaders
that overlap for a moment write the same updates, and the shards' `compare_and_append` keeps one copy of each.

A standby registers itself in the catalog, and the leader renews often only while one is registered: a leader alone
writes next to nothing. The trade-off: where a leader died on another machine and nobody stood by, the first process to
come waits out the lease.
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

#: A leader counts as dead so many milliseconds after its last renewal, where a standby watched it.
LEASE_MS = 30_000
#: The lease of a leader without a standby, in milliseconds. Either lease is renewed after two thirds of it.
ALONE_MS = 3_600_000


def this_process() -> str:
    """This process's name in leases and messages: ``host pid``. Others on the machine find out by it whether the
    process still exists.
    """
    return f"{socket.gethostname()} {os.getpid()}"


def is_here(who: str) -> bool:
    """Whether ``who`` (``host pid``) names a process of this machine, alive or not."""
    return who.rpartition(" ")[0] == socket.gethostname()


def is_gone(who: str) -> bool:
    """Whether ``who`` certainly runs no more: a process of this machine that does not exist. False where it cannot be
    known.
    """
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
    """Whether somebody seems to lead, for display only: a leader without a standby may have died unnoticed on another
    machine.
    """
    return lease is not None and lease.expires_at > now_ms and not is_gone(lease.who)


def runs_within(token: str, state: CatalogState, replica_id: str) -> bool:
    """Whether, by a state of the catalog, the leader whose lease has ``token`` runs a replica in its own process."""
    entry = state.replicas.get(replica_id)
    leads = state.lease is not None and state.lease.token == token
    return leads and entry is not None and entry.process is None


class Leadership:
    """This process's claim to the lease. Not thread-safe: one thread acquires and renews it.

    Args:
        catalog: the environment's catalog.
        clock: its monotonic time measures leases; its wall time is only displayed.
        generation: this process's deploy generation.
        build: the program's version, which replicas of other versions look at.
    """

    def __init__(
        self, catalog: DurableCatalog, clock: Clock, *, generation: int = 0, build: str = ""
    ) -> None:
        self._catalog = catalog
        self._clock = clock
        self._generation = generation
        self._build = build
        self.token = str(uuid.uuid4())
        # When this process last renewed its lease, in seconds of the monotonic clock, and for how many milliseconds.
        self._renewed = 0.0
        self._renewed_for = 0
        # The leader's lease as last seen by this standby, and since when it has not changed (monotonic seconds).
        self._watched: Lease | None = None
        self._watched_since = 0.0
        # When this process first saw each standby, by token (monotonic seconds).
        self._met: dict[str, float] = {}

    def hold(self, state: CatalogState) -> bool:
        """Take or renew the lease where that is possible and due.

        Args:
            state: the catalog as read lately. Consensus is asked only to take or renew the lease, or to register this
                process as a standby.

        Returns:
            Whether this process leads now.

        Raises:
            Fenced: a higher deploy generation was promoted.
        """
        lease = state.lease
        if self.is_held(state):
            return self._renew() if self._renewal_due(state) else True
        if lease is None or self._is_free(lease) or self._seems_dead(state, lease):
            return self._take(lease)
        if self.token not in state.standbys:
            self._stand_by()
        return False

    def is_held(self, state: CatalogState) -> bool:
        """Whether, by a state of the catalog, this process leads."""
        return state.lease is not None and state.lease.token == self.token

    # --- a leader -----------------------------------------------------------------------------

    def _awaited(self, state: CatalogState) -> bool:
        """Whether another process stands by."""
        return any(
            token != self.token and not self._left(token, standby)
            for token, standby in state.standbys.items()
        )

    def _left(self, token: str, standby: Standby) -> bool:
        """Whether a standby no longer counts. One that is alive registers again when its entry is removed.

        Its age is counted here, from when this process first saw it: the standby's own wall clock may be hours off.
        """
        now = self._clock.monotonic()
        return (now - self._met.setdefault(token, now)) * 1000 > ALONE_MS or is_gone(standby.who)

    def _renewal_due(self, state: CatalogState) -> bool:
        wanted = LEASE_MS if self._awaited(state) else ALONE_MS
        lasting = min(wanted, self._renewed_for)
        return (self._clock.monotonic() - self._renewed) * 1000 >= lasting * 2 // 3

    def _renew(self) -> bool:
        def renewed(state: CatalogState) -> tuple[Change, int]:
            if not self.is_held(state):
                return NOTHING, 0
            return self._leased(state)

        return self._done(self._catalog.transact(renewed))

    def _leased(self, state: CatalogState) -> tuple[Change, int]:
        """The change that makes this process the leader and removes standbys that left; and the lease's length in
        milliseconds.
        """
        left = [t for t, one in state.standbys.items() if t == self.token or self._left(t, one)]
        # Often only where somebody waits to take over: an environment with one process writes next to nothing while it is idle.
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
        """Whether the lease can be taken at once: it was given back, its process no longer exists, or it belongs to a
        lower deploy generation.
        """
        return lease.expires_at == 0 or lease.generation < self._generation or is_gone(lease.who)

    def _seems_dead(self, state: CatalogState, lease: Lease) -> bool:
        """Whether the leader has not renewed for `LEASE_MS` while this process was registered as a standby, so that the
        leader knew to renew often.
        """
        now = self._clock.monotonic()
        if self.token not in state.standbys or self._watched != lease:
            self._watched, self._watched_since = lease, now
        return (now - self._watched_since) * 1000 >= LEASE_MS

    def _take(self, seen: Lease | None) -> bool:
        def taken(state: CatalogState) -> tuple[Change, int]:
            # The lease was judged free or dead as it was seen. If it has changed since, by another leader or a renewal,
            # judge again.
            return self._leased(state) if state.lease == seen else (NOTHING, 0)

        return self._done(self._catalog.transact(taken))

    def _stand_by(self) -> None:
        standby = Standby(this_process(), self._clock.now_ms())
        waiting = Change(standbys={self.token: standby})
        self._catalog.transact(lambda _: (waiting, None))

    def release(self) -> None:
        """Give the lease back, or stop standing by. Idempotent."""

        def give_up(state: CatalogState) -> tuple[Change, None]:
            change = NOTHING
            if self.token in state.standbys:
                change |= Change(standbys={self.token: None})
            held = state.lease
            if held is not None and held.token == self.token:
                change |= Change(lease=msgspec.structs.replace(held, expires_at=0))
            return change, None

        self._catalog.transact(give_up)
