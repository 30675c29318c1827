"""What everything of one client shares: its backends, clock, randomness and settings, and how calls to the backends are made.

Promise: nothing here knows of a shard. Backends, time and chance are reached through a `Context` alone, so that a simulator can stand in
for each of them.
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
    """A Blob that keeps copies of objects, and gets one anew when told to."""

    def forget(self, key: str) -> None:
        """Drop all copies of the object ``key``."""


def _set_event() -> threading.Event:
    event = threading.Event()
    event.set()
    return event


class Context(msgspec.Struct, frozen=True):
    """What everything of one client shares."""

    blob: Blob
    consensus: Consensus
    clock: Clock
    rng: random.Random
    settings: Settings
    blob_url: str | None = None
    threads: bool = False
    """Whether calls may do part of their work on threads of their own; without, all happens in order, as a simulator needs."""
    closing: threading.Event = msgspec.field(default_factory=lambda: threading.Event())
    """Set when the client closes: whoever waits or retries stops."""
    meter: Meter = msgspec.field(default_factory=lambda: Meter(metrics_of(), SystemClock()))
    version: str = VERSION
    """The program's version, as shards remember it."""
    takes_over: threading.Event = msgspec.field(default_factory=_set_event)
    """Set when what this client changes is of its version from then on (`mzsql.persist.versions`)."""
    supervisor: Supervisor = msgspec.field(default_factory=lambda: Supervisor())
    """Runs the client's threads."""
    places: tuple[str, ...] = ()
    """The URLs of Blob and Consensus as shown to people, where they are known."""
    keeps_leases: bool = False
    """Whether somebody renews the leases of all open handles in time; without, each is renewed by its own calls, or runs out."""
    watch: Watch = msgspec.field(default_factory=lambda: Watch(SystemClock()))
    """By which leases of other processes are judged; of the same ``clock``."""
    written: Ages = msgspec.field(default_factory=lambda: Ages(SystemClock()))
    """When the objects written here were named; of the same ``clock``."""
    unnamed: Ages = msgspec.field(default_factory=lambda: Ages(SystemClock()))
    """When objects that nobody refers to were found first; of the same ``clock``."""

    @property
    def awaited(self) -> str:
        """What to say of a call that is under way and has not met an error yet."""
        return f"; it waits for {' or '.join(self.places)}" if self.places else ""

    def deadline(self, timeout: float | None) -> Deadline:
        """The end of a call that starts now: after ``timeout`` seconds, by default the setting's, or when its caller's limit ends it."""
        if timeout is None:
            timeout = self.settings.timeout
        elif not isinstance(timeout, int | float):
            raise UsageError(f"a timeout is a number of seconds, not {timeout!r}")
        limit = caller_limit()
        if limit is None:
            return Deadline(self.clock, timeout)
        return Deadline(self.clock, min(timeout, max(0.0, limit())), limit)

    def retrying(self, act: Callable[[], T], deadline: Deadline) -> T:
        """``act()``, retried; see `mzsql.persist.retry.retrying`. The backend that it calls is told how long it has."""

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
        """A random identifier."""
        return new_id(self.rng)

    def new_object_id(self) -> str:
        """The name of an object about to be written, which begins with the time."""
        drawn = new_timed_id(self.clock.now_ms(), self.rng)
        self.written.meet(drawn)
        return drawn
