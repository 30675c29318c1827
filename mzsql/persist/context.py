"""What all parts of one client share: its backends, clock, randomness and settings, and how calls to the backends are
made.

Promise: nothing here knows of a shard. Backends, time and randomness are reached through a `Context` alone, so that
a simulator can replace each of them.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import msgspec

from mzsql.location import Blob, Consensus, UsageError, caller_limit, waiting
from mzsql.persist.ages import Ages
from mzsql.persist.clock import Clock, Deadline, SystemClock, new_id, new_timed_id
from mzsql.persist.metrics import Meter, metrics_of
from mzsql.persist.retry import retrying
from mzsql.persist.settings import Settings
from mzsql.persist.watch import Watch
from mzsql.repr.version import VERSION
from mzsql.threads import Supervisor

T = TypeVar("T")


@runtime_checkable
class Forgetful(Protocol):
    """A Blob that caches copies of objects, and fetches one again when told to."""

    def forget(self, key: str) -> None:
        """Drop all copies of the object ``key``."""


def _set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


class Context(msgspec.Struct, frozen=True):
    """What all parts of one client share. Immutable; its events and counters are thread-safe."""

    blob: Blob
    consensus: Consensus
    clock: Clock
    rng: random.Random
    settings: Settings
    blob_url: str | None = None
    threads: bool = False
    """Whether calls may do part of their work on threads of their own; otherwise all happens in order, as a simulator
    needs.
    """
    closing: threading.Event = msgspec.field(default_factory=lambda: threading.Event())
    """Set when the client closes: calls that wait or retry stop."""
    meter: Meter = msgspec.field(default_factory=lambda: Meter(metrics_of(), SystemClock()))
    version: str = VERSION
    """The program's version, which is recorded in the shards it changes."""
    takes_over: threading.Event = msgspec.field(default_factory=_set_event)
    """Set once what this client changes is marked as changed by its version (`mzsql.persist.versions`)."""
    supervisor: Supervisor = msgspec.field(default_factory=lambda: Supervisor())
    """Runs the client's threads."""
    places: tuple[str, ...] = ()
    """The URLs of Blob and Consensus as shown to people (without secrets), if known."""
    keeps_leases: bool = False
    """Whether a thread renews the leases of all open handles in time; otherwise each is renewed by its own calls, or
    runs out.
    """
    watch: Watch = msgspec.field(default_factory=lambda: Watch(SystemClock()))
    """Judges the leases of other processes; of the same ``clock``."""
    written: Ages = msgspec.field(default_factory=lambda: Ages(SystemClock()))
    """When the objects written here got their names; of the same ``clock``."""
    unnamed: Ages = msgspec.field(default_factory=lambda: Ages(SystemClock()))
    """When objects that nobody refers to were first found; of the same ``clock``."""

    @property
    def awaited(self) -> str:
        """The end of an error message for a call that is still waiting and has not met an error."""
        return f"; it waits for {' or '.join(self.places)}" if self.places else ""

    def deadline(self, timeout: float | None) -> Deadline:
        """Return the end of a call that starts now: ``timeout`` seconds (the setting's by default), or earlier if its
        caller's limit is.

        Raises:
            UsageError: the timeout is not a number.
        """
        if timeout is None:
            timeout = self.settings.timeout
        elif not isinstance(timeout, int | float):
            raise UsageError(f"a timeout is a number of seconds, not {timeout!r}")
        limit = caller_limit()
        if limit is None:
            return Deadline(self.clock, timeout)
        return Deadline(self.clock, min(timeout, max(0.0, limit())), limit)

    def retrying(self, act: Callable[[], T], deadline: Deadline) -> T:
        """Call ``act()`` with retries, see `mzsql.persist.retry.retrying`; the backend it calls is told how much time
        is left.
        """

        def limited() -> T:
            with waiting(deadline.remaining):
                return act()

        return retrying(
            limited,
            self.clock,
            self.rng,
            deadline,
            abandoned=self.closing.is_set,
            retried=self.meter.metrics.retries.inc,
        )

    def new_id(self) -> str:
        """Return a random identifier."""
        return new_id(self.rng)

    def new_object_id(self) -> str:
        """Return a name for an object about to be written; it begins with the time, so that the object's age can be
        told.
        """
        drawn = new_timed_id(self.clock.now_ms(), self.rng)
        self.written.meet(drawn)
        return drawn
