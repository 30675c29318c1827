"""The supervisor of one owner's threads, and the one of what belongs to the whole process."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

import msgspec
from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge

from mzsql.repr.errors import SqlError, ThreadFailed, no_thread, told
from mzsql.threads.priority import plainly

_log = logging.getLogger(__name__)

Status: TypeAlias = Literal["running", "restarting", "failed"]

_SPREAD = 0.5
"""The share of a pause that chance may take away, so that those that failed together do not come back together."""


class Clock(Protocol):
    """The wall time that statuses tell."""

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""


class _SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class Backoff(msgspec.Struct, frozen=True):
    """The pauses before work that failed is begun anew: ``first`` seconds, doubled with each failure in a row, up to ``most``."""

    first: float = 0.1
    most: float = 10.0

    def pause(self, failures: int, rng: random.Random) -> float:
        """Seconds before the next beginning, after so many failures in a row."""
        span = min(self.most, self.first * 2.0 ** min(failures - 1, 60))
        return span * (1 - _SPREAD * rng.random())


class ThreadStatus(msgspec.Struct, frozen=True):
    """How a thread stands.

    Attributes:
        name: what it does, the same for all threads that do the same.
        object_id: for what it does that (an object, a shard, a replica), where there is one for each.
        status: ``running``; ``restarting`` from a failure on until it is well again; ``failed`` for good.
        error: the latest failure's, unless it is ``running``.
        restarts: how often the work was begun anew.
        since_ms: when the status became what it is, in milliseconds since the epoch.
    """

    name: str
    object_id: str | None
    status: Status
    error: str | None
    restarts: int
    since_ms: int


class _Metrics:
    """The collectors of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.restarts = Counter(
            "mzsql_thread_restarts",
            "How often a thread's work was begun anew after it had failed",
            ("thread",),
            registry=registry,
        )
        self.threads = Gauge(
            "mzsql_threads", "Supervised threads by status", ("thread", "status"), registry=registry
        )


_metrics_lock = threading.Lock()
_metrics: weakref.WeakKeyDictionary[CollectorRegistry, _Metrics] = weakref.WeakKeyDictionary()


def _metrics_of(registry: CollectorRegistry) -> _Metrics:
    with _metrics_lock:
        found = _metrics.get(registry)
        if found is None:
            found = _metrics[registry] = _Metrics(registry)
        return found


class Supervised:
    """One thread; made by `Supervisor.start`. Its work gets this object, and calls `well` whenever a round of it has gone well."""

    def __init__(
        self,
        supervisor: Supervisor,
        name: str,
        work: Callable[[Supervised], None],
        *,
        object_id: str | None,
        thread_name: str,
        changed: Callable[[ThreadStatus], None] | None,
        backoff: Backoff,
        for_good: tuple[type[BaseException], ...],
    ) -> None:
        self._supervisor = supervisor
        self._work = work
        self._changed = changed
        self._backoff = backoff
        self._for_good = for_good
        self._failures = 0
        self._stop = threading.Event()
        self._rested = threading.Event()
        self._last = False
        self.status = ThreadStatus(name, object_id, "running", None, 0, supervisor.clock.now_ms())
        self.failure: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=thread_name, daemon=True)

    # --- for the owner ------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """Whether it has ended for good by a failure."""
        return self.status.status == "failed"

    def check(self, what: str) -> None:
        """Raise where it has ended for good.

        Args:
            what: what it did, for the message: "the group commit".

        Raises:
            ThreadFailed: it has; with the failure that ended it.
        """
        if self.failed:
            raise ThreadFailed(
                f"{what} of this process has ended: {self.status.error}",
                hint="Close the environment's connections in this process and connect again; mz_internal.mz_threads shows its threads.",
            ) from self.failure

    def stop(self) -> None:
        """Ask it to end; what its work waits for is its owner's to end. Idempotent."""
        self._stop.set()
        self._rested.set()

    def finish(self) -> None:
        """Have it do what is left: a pause after a failure ends now, and a failure from here on is its end. Idempotent."""
        self._last = True
        self._rested.set()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, for ``timeout`` seconds at most, and show it no more."""
        if self.thread is not threading.current_thread():
            self.thread.join(timeout)
        if not self.thread.is_alive():
            self._supervisor._forget(self)

    def is_alive(self) -> bool:
        """Whether the thread has not ended."""
        return self.thread.is_alive()

    # --- for its work -------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        """Whether it was asked to end."""
        return self._stop.is_set()

    def wait(self, seconds: float) -> bool:
        """Rest for so many seconds or until it is asked to end; whether it was."""
        return self._stop.wait(seconds)

    def well(self) -> None:
        """The work goes well: a failure before is over, and the next one is followed by the first pause again."""
        if self.status.status != "running":
            _log.info("%s goes on, after %d failures", self, self._failures)
            self._set("running", None)
        self._failures = 0

    def trouble(self, failure: BaseException) -> None:
        """Show a failure that the work has survived, until `well`."""
        self._failures += 1
        if self.status.status == "running":
            bug = None if isinstance(failure, SqlError) else failure
            _log.warning("%s fails for now: %s", self, told(failure), exc_info=bug)
        self._set("restarting", failure)

    # --- the thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                try:
                    self._work(self)
                    return
                except BaseException as failure:
                    if self._ends_by(failure):
                        return
                self._rested.wait(self._backoff.pause(self._failures, self._supervisor.rng))
                if self._stop.is_set():
                    return
                self._supervisor._restarted(self)
        finally:
            if not self.failed:
                self._supervisor._forget(self)

    def _ends_by(self, failure: BaseException) -> bool:
        """Whether a failure of the work is its end."""
        if self._stop.is_set() or self._last:
            _log.warning("%s has ended as it was closed, with: %s", self, told(failure))
            return True
        if isinstance(failure, Exception) and not isinstance(failure, self._for_good):
            self.trouble(failure)
            return False
        self.failure = failure
        bug = None if isinstance(failure, SqlError) else failure
        _log.error("%s has ended for good: %s", self, told(failure), exc_info=bug)
        self._set("failed", failure)
        return True

    def _set(self, status: Status, failure: BaseException | None) -> None:
        error = None if failure is None else told(failure)
        before = self.status
        since = before.since_ms if status == before.status else self._supervisor.clock.now_ms()
        self.status = msgspec.structs.replace(before, status=status, error=error, since_ms=since)
        self._supervisor._moved(self, before)
        if self._changed is not None and before.status != status:
            try:
                self._changed(self.status)
            except Exception:  # the thread goes on, whatever its owner makes of it
                _log.exception("%s: its owner failed to hear of its status", self)

    def __str__(self) -> str:
        one = self.status
        return f"thread {one.name}" + (f" of {one.object_id}" if one.object_id else "")


class Supervisor:
    """The threads of one owner. Thread-safe.

    Args:
        clock: tells since when a thread has its status; the machine's by default.
        rng: spreads the pauses; the system's by default.
        backoff: the pauses of threads that have none of their own.
        registry: where metrics are kept; prometheus_client's default registry by default.
    """

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        backoff: Backoff | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        self.clock: Clock = clock or _SystemClock()
        self.rng = rng or random.SystemRandom()
        self._backoff = backoff or Backoff()
        self._fixed = backoff is not None
        self._metrics = _metrics_of(REGISTRY if registry is None else registry)
        self._begin()
        _forks.add(self)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._threads: list[Supervised] = []

    def start(
        self,
        name: str,
        work: Callable[[Supervised], None],
        *,
        thread_name: str,
        object_id: str | None = None,
        changed: Callable[[ThreadStatus], None] | None = None,
        backoff: Backoff | None = None,
        for_good: tuple[type[BaseException], ...] = (),
    ) -> Supervised:
        """Run ``work`` on a thread until it returns.

        Args:
            name: what it does, in a word or two with hyphens: a label of metrics, so the same for all that do the same.
            work: begun anew whenever it raises; it ends when `Supervised.stopping`.
            thread_name: as debuggers show it.
            object_id: for what it does that.
            changed: told of every change of status, on the thread itself.
            backoff: its pauses, unless the supervisor was given some for all.
            for_good: errors after which it is not begun anew; what is no `Exception` never is.

        Raises:
            NoThread: the machine has no memory for it, or lets the process have no more.
        """
        one = Supervised(
            self,
            name,
            work,
            object_id=object_id,
            thread_name=thread_name,
            changed=changed,
            backoff=self._backoff if self._fixed or backoff is None else backoff,
            for_good=for_good,
        )
        with self._changed:
            self._threads.append(one)
            self._gauge(one.status).inc()
        try:
            # It is its owner's and not the caller's: whether it gives way it says itself.
            plainly(one.thread.start)
        except RuntimeError as failure:
            self._forget(one)
            raise no_thread(str(one)) from failure
        return one

    def statuses(self) -> tuple[ThreadStatus, ...]:
        """Every thread that runs, or has ended by a failure and was not closed since."""
        with self._changed:
            return tuple(one.status for one in self._threads)

    def wait_for(self, holds: Callable[[tuple[ThreadStatus, ...]], bool], timeout: float) -> bool:
        """Wait until something holds of the statuses, for ``timeout`` seconds at most; whether it does."""
        with self._changed:
            return self._changed.wait_for(
                lambda: holds(tuple(one.status for one in self._threads)), timeout
            )

    # --- told by the threads ------------------------------------------------------------------

    def _gauge(self, status: ThreadStatus) -> Gauge:
        return self._metrics.threads.labels(status.name, status.status)

    def _moved(self, one: Supervised, before: ThreadStatus) -> None:
        with self._changed:
            if one in self._threads and before.status != one.status.status:
                self._gauge(before).dec()
                self._gauge(one.status).inc()
            self._changed.notify_all()

    def _restarted(self, one: Supervised) -> None:
        with self._changed:
            one.status = msgspec.structs.replace(one.status, restarts=one.status.restarts + 1)
            self._changed.notify_all()
        self._metrics.restarts.labels(one.status.name).inc()

    def _forget(self, one: Supervised) -> None:
        with self._changed:
            if one in self._threads:
                self._threads.remove(one)
                self._gauge(one.status).dec()
            self._changed.notify_all()


_forks: weakref.WeakSet[Supervisor] = weakref.WeakSet()


def _begin_all_anew() -> None:
    """In the child of a fork: the parent's threads are not there."""
    for supervisor in list(_forks):
        supervisor._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_all_anew)


PROCESS = Supervisor()
"""Supervises what belongs to no environment: the watch over statements' deadlines, what a plugin's backend runs."""
