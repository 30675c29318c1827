"""A world of processes in one thread: simulated time, a scheduler driven by one seed, processes that die or freeze between any two steps.

Promise: everything that happens, and in which order, follows from the seed. A task (a greenlet) runs until it sleeps, waits or calls a
backend; then the one whose time has come goes on. A process that was killed does nothing any more: its tasks are unwound with `Died`,
and whatever they try on the way out raises `Died` again without acting. Locks, events and threads of the simulated code are this
world's own (`cooperative`), so several tasks share one client as threads do. Trade-off: code between two backend calls runs as one
step, so races between threads of a process within such a step are not explored.
Source: FoundationDB's simulation; TigerBeetle's VOPR.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import heapq
import random
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import duckdb
import greenlet
import pyarrow as pa
import pyarrow.acero
import pyarrow.parquet as pq

from mzsql.repr.version import VERSION
from mzsql.threads import Supervised

MS = 1000
SECOND = 1_000_000
NEWER = "999.1.0"
"""The version of a process that came after the others."""
_EPOCH_MS = 1_700_000_000_000


class Died(BaseException):
    """Thrown into the tasks of a process that is killed; nothing of the simulated code may catch it."""


class Violation(AssertionError):
    """A promise was broken."""


class Task:
    """A flow of control within a process."""

    def __init__(self, world: World, process: Process, name: str, body: Callable[[], None]) -> None:
        self.world = world
        self.process = process
        self.name = f"{process.name}.{name}"
        self.generation = 0
        self.done = False
        self.doing: Any = None
        self.waiters: list[Task] = []
        self.thread: Thread | None = None
        self.greenlet = greenlet.greenlet(lambda: self._run(body), parent=world.hub)

    def _run(self, body: Callable[[], None]) -> None:
        try:
            body()
        except Died:
            self.world.note(self.name, "died")
        finally:
            self.done = True
            for waiter in self.waiters:
                self.world.wake(waiter)


class Process:
    """An operating system's process: it lives, is frozen for a while, dies.

    Its wall clock is off, jumps and stands still; its monotonic clock, which goes on while it is frozen, runs a little fast or slow.
    """

    def __init__(self, world: World, name: str, skew_ms: int, rate: float = 1.0) -> None:
        self.world = world
        self.name = name
        self.skew_ms = self.most_skew_ms = skew_ms
        self.rate = rate
        self._stands_at: int | None = None
        self._stands_until = 0
        self.alive = True
        self.frozen_until = 0
        self.tasks: list[Task] = []
        self.dies_in: int | None = None
        self.on_death: Callable[[], None] = lambda: None
        self.version = VERSION
        self.rng = random.Random(f"{world.seed}/{name}")

    def freeze(self, until: int) -> None:
        """Do nothing before ``until``; whoever is frozen for longer already stays so."""
        self.frozen_until = max(self.frozen_until, until)

    # What persist asks of a clock.

    def now_ms(self) -> int:
        """Its wall clock."""
        if self._stands_at is not None and self.world.now < self._stands_until:
            return self._stands_at
        return max(0, _EPOCH_MS + self.world.now // MS + self.skew_ms)

    def jump(self, by_ms: int) -> None:
        """The wall clock is set forward or back."""
        self._stands_at = None
        self.skew_ms += by_ms
        self.most_skew_ms = max(self.most_skew_ms, self.skew_ms)

    def stand_still(self, until: int) -> None:
        """The wall clock shows the same before ``until``."""
        self._stands_at, self._stands_until = self.now_ms(), until

    def monotonic(self) -> float:
        """Seconds since the world began, as this machine counts them."""
        return self.world.now / SECOND * self.rate

    def sleep(self, seconds: float) -> None:
        """Pause the task."""
        self.world.sleep(max(1, round(seconds / self.rate * SECOND)))


class World:
    """The scheduler: simulated time in microseconds, and what is to happen when."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.now = 0
        self.hub = greenlet.getcurrent()
        self.current: Task | None = None
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.order = 0
        self.steps = 0
        self.log: list[tuple[Any, ...]] = []
        self.coverage: Counter[str] = Counter()
        self.verbose = False

    def note(self, *what: Any) -> None:
        """Write a line of the event log."""
        self.log.append((self.now, *what))
        if self.verbose:
            sys.stdout.write(" ".join(map(str, (f"{self.now / SECOND:12.6f}", *what))) + "\n")

    def digest(self) -> str:
        """What happened, as a checksum."""
        return hashlib.sha256("\n".join(map(repr, self.log)).encode()).hexdigest()

    def at(self, delay: int, act: Callable[[], None]) -> None:
        """Do something outside of all tasks, after so many microseconds."""
        self.order += 1
        heapq.heappush(self.events, (self.now + delay, self.order, act))

    def spawn(self, process: Process, name: str, body: Callable[[], None]) -> Task:
        """A new task, which starts in a moment."""
        task = Task(self, process, name, body)
        process.tasks.append(task)
        self._resume_at(task, 0)
        return task

    def run(self, until: Callable[[], bool], limit: int) -> None:
        """Let things happen until ``until()``.

        Raises:
            Violation: it is not so after ``limit`` events, or nothing is left to happen.
        """
        for _ in range(limit):
            if until():
                return
            if not self.events:
                raise Violation("everybody waits for somebody")
            when, _, act = heapq.heappop(self.events)
            self.now = max(self.now, when)
            act()
        raise Violation(f"no end after {limit} events")

    # What tasks do.

    def _resume_at(self, task: Task, delay: int) -> None:
        task.generation += 1
        generation = task.generation

        def resume() -> None:
            process = task.process
            if task.done or task.generation != generation or not process.alive:
                return
            if process.frozen_until > self.now:
                self._resume_at(task, process.frozen_until - self.now)
                return
            self.steps += 1
            self.current = task
            try:
                task.greenlet.switch()
            finally:
                self.current = None

        self.at(delay, resume)

    def _task(self) -> Task:
        task = self.current
        assert task is not None, "only a task can wait"
        if not task.process.alive:
            raise Died
        return task

    def _switch(self, task: Task) -> None:
        process = task.process
        if process.dies_in is not None:
            process.dies_in -= 1
            if process.dies_in <= 0:
                process.dies_in = None
                self.at(0, lambda: self.kill(process))
        self.hub.switch()
        if not process.alive:
            raise Died

    def sleep(self, microseconds: int) -> None:
        """Pause the current task."""
        task = self._task()
        self._resume_at(task, microseconds)
        self._switch(task)

    def park(self, timeout: float | None) -> None:
        """Pause the current task until somebody wakes it, or for so many seconds."""
        task = self._task()
        if timeout is None:
            task.generation += 1
        else:
            self._resume_at(task, max(1, round(timeout * SECOND)))
        self._switch(task)

    def wake(self, task: Task) -> None:
        """Have a parked task go on now."""
        if not task.done and task.process.alive:
            self._resume_at(task, 0)

    def kill(self, process: Process) -> None:
        """End a process between two steps; from outside of all tasks."""
        assert self.current is None
        if not process.alive:
            return
        process.alive = False
        self.note(process.name, "killed")
        for task in process.tasks:
            if task.done:
                continue
            if not task.greenlet:
                task.done = True
                continue
            self.current = task
            try:
                task.greenlet.throw(Died)
            finally:
                self.current = None
        for task in process.tasks:
            task.waiters.clear()
        process.on_death()


class _Cooperative:
    """What the simulated code finds under the name of the module ``threading``."""

    TIMEOUT_MAX = threading.TIMEOUT_MAX

    def __init__(self, world: World) -> None:
        self._world = world

    def Lock(self) -> Lock:  # noqa: N802
        return Lock(self._world, reentrant=False)

    def RLock(self) -> Lock:  # noqa: N802
        return Lock(self._world, reentrant=True)

    def Condition(self) -> Condition:  # noqa: N802
        return Condition(self._world)

    def Event(self) -> Event:  # noqa: N802
        return Event(self._world)

    def Thread(self, *, target: Any, name: str, daemon: bool, args: Any = ()) -> Thread:  # noqa: N802
        assert daemon
        return Thread(self._world, name, lambda: target(*args))

    def current_thread(self) -> object:
        task = self._world.current
        return None if task is None else task.thread

    def get_ident(self) -> int:
        return id(self._world.current)


class Lock:
    """A lock between tasks; whoever is nobody's task meets no contention."""

    def __init__(self, world: World, *, reentrant: bool) -> None:
        self._world = world
        self._reentrant = reentrant
        self._owner: object = None
        self._depth = 0
        self._waiting: list[Task] = []

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """As `threading.Lock.acquire`."""
        world = self._world
        me: object = world.current or world
        end = None if timeout < 0 else world.now + round(min(timeout, 1e9) * SECOND)
        while self._owner is not None and not (self._reentrant and self._owner is me):
            task = world._task()
            if not blocking or (end is not None and world.now >= end):
                return False
            self._waiting.append(task)
            try:
                world.coverage["lock contended"] += 1
                world.park(None if end is None else (end - world.now) / SECOND)
            finally:
                self._waiting.remove(task)
        self._owner = me
        self._depth += 1
        return True

    def release(self) -> None:
        """As `threading.Lock.release`, and of a reentrant one as `threading.RLock.release`."""
        if self._reentrant and self._owner is not (self._world.current or self._world):
            raise RuntimeError("cannot release un-acquired lock")
        assert self._owner is not None
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            if self._waiting:
                self._world.wake(self._waiting[0])

    def locked(self) -> bool:
        """As `threading.Lock.locked`."""
        return self._owner is not None

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """As `threading.Condition`."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._lock = Lock(world, reentrant=True)
        self._waiting: list[Task] = []

    def __enter__(self) -> Condition:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def acquire(self) -> None:
        """As `threading.Condition.acquire`; whoever dies meanwhile has it too, as it is going to release it."""
        task = self._world.current
        try:
            self._lock.acquire()
        except Died:
            self._lock._owner, self._lock._depth = task, 1
            raise

    def release(self) -> None:
        """As `threading.Condition.release`."""
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """As `threading.Condition.wait`, which may wake for nothing."""
        world = self._world
        task = world._task()
        self._waiting.append(task)
        self._lock.release()
        started = world.now
        try:
            world.park(timeout)
        finally:
            self._waiting.remove(task)
            if task.process.alive:
                self._lock.acquire()
            else:
                self._lock._owner, self._lock._depth = task, 1
        return timeout is None or world.now - started < timeout * SECOND

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """As `threading.Condition.wait_for`."""
        end = None if timeout is None else self._world.now + timeout * SECOND
        while not predicate():
            left = None if end is None else (end - self._world.now) / SECOND
            if left is not None and left <= 0:
                return False
            self.wait(left)
        return True

    def notify(self, n: int = 1) -> None:
        """As `threading.Condition.notify`."""
        for task in self._waiting[:n]:
            self._world.wake(task)

    def notify_all(self) -> None:
        """As `threading.Condition.notify_all`."""
        self.notify(len(self._waiting))


class Event:
    """As `threading.Event`."""

    def __init__(self, world: World) -> None:
        self._condition = Condition(world)
        self._set = False

    def is_set(self) -> bool:
        """As `threading.Event.is_set`."""
        return self._set

    def set(self) -> None:
        """As `threading.Event.set`."""
        self._set = True
        self._condition.notify_all()

    def clear(self) -> None:
        """As `threading.Event.clear`."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """As `threading.Event.wait`."""
        with self._condition:
            return self._condition.wait_for(self.is_set, timeout)


class Thread:
    """A thread as a task of the process that starts it."""

    def __init__(self, world: World, name: str, body: Callable[[], None]) -> None:
        self._world = world
        self._body = body
        self.name = name
        self._task: Task | None = None

    def start(self) -> None:
        """As `threading.Thread.start`."""
        process = self._world._task().process
        self._task = self._world.spawn(process, self.name.rpartition("-")[2], self._body)
        self._task.thread = self

    def join(self, timeout: float | None = None) -> None:
        """As `threading.Thread.join`."""
        assert self._task is not None
        while not self._task.done:
            self._task.waiters.append(self._world._task())
            self._world.park(timeout)
            if timeout is not None:
                return

    def is_alive(self) -> bool:
        """As `threading.Thread.is_alive`."""
        return self._task is not None and not self._task.done


class _OneDuckdb:
    """DuckDB with one connection for all, on one thread: its start is most of the cost of a small merge."""

    def __init__(self) -> None:
        self._connection = duckdb.connect(config={"threads": 1})

    def connect(self, *_: Any, **__: Any) -> Any:
        return self._connection.cursor()

    def __getattr__(self, name: str) -> Any:
        return getattr(duckdb, name)


class _ReadBefore:
    """What stands in for `pyarrow.RecordBatchReader` where DuckDB would pull: a task cannot pause inside of DuckDB."""

    @staticmethod
    def from_batches(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(list(batches), schema)


class _Arrow:
    RecordBatchReader = _ReadBefore

    def __getattr__(self, name: str) -> Any:
        return getattr(pa, name)


class _Opened:
    """A Parquet file of certain bytes, each stretch of which is decoded once."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._read: dict[Any, pa.Table] = {}
        self.metadata = file.metadata

    def read_row_groups(self, groups: Iterable[int], columns: Iterable[str]) -> pa.Table:
        asked = (tuple(groups), tuple(columns))
        if asked not in self._read:
            self._read[asked] = self._file.read_row_groups(list(asked[0]), columns=list(asked[1]))
        return self._read[asked]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _DecodedOnce:
    """The module `pyarrow.parquet` for whoever reads whole objects: the same bytes are decoded once, other bytes anew."""

    def __init__(self) -> None:
        self._files: dict[bytes, _Opened] = {}

    def ParquetFile(self, source: Any, **options: Any) -> Any:  # noqa: N802
        if options:
            return pq.ParquetFile(source, **options)
        data = source.read()
        if data not in self._files:
            self._files[data] = _Opened(pq.ParquetFile(pa.BufferReader(data)))
        return self._files[data]

    def __getattr__(self, name: str) -> Any:
        return getattr(pq, name)


_one_duckdb: list[_OneDuckdb] = []


def _dies(ends_by: Callable[..., bool]) -> Callable[..., bool]:
    """A supervised thread of a process that is killed ends with it, and nobody is told."""

    def call(thread: Any, failure: BaseException) -> bool:
        if isinstance(failure, Died):
            raise failure
        return ends_by(thread, failure)

    return call


def _started_here(start: Callable[[threading.Thread], None]) -> Callable[[threading.Thread], None]:
    """No thread of the machine works beside the world: nothing would follow from the seed any more."""
    ours = threading.current_thread()

    def call(thread: threading.Thread) -> None:
        if threading.current_thread() is ours:
            raise Violation(f"{thread.name} is a thread of the machine, no task of the world")
        start(thread)

    return call


def _alone(act: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return act(*args, **{**options, "use_threads": False})

    return call


@contextlib.contextmanager
def cooperative(world: World) -> Iterator[None]:
    """While it lasts, persist's threads and locks are the world's, and objects die only when their last reference goes.

    So are those of who supervises persist's threads; a thread of the machine would work beside the world, and is a violation.
    """
    if not _one_duckdb:
        _one_duckdb.append(_OneDuckdb())
    stand_ins = {"threading": _Cooperative(world), "duckdb": _one_duckdb[0]}
    before: list[tuple[Any, str, Any]] = []
    for name, module in list(sys.modules.items()):
        if name.split(".")[:2] in (["mzsql", "persist"], ["mzsql", "threads"]):
            for attribute, stand_in in stand_ins.items():
                if hasattr(module, attribute):
                    before.append((module, attribute, getattr(module, attribute)))
                    setattr(module, attribute, stand_in)
    compaction = sys.modules["mzsql.persist.compaction"]
    before.append((compaction, "pa", pa))
    compaction.pa = _Arrow()  # type: ignore[attr-defined]
    fetch = sys.modules["mzsql.persist.fetch"]
    before.append((fetch, "pq", pq))
    fetch.pq = _DecodedOnce()  # type: ignore[attr-defined]
    # Arrow's own threads change no result, but the order of rows, and take longer than rows this few.
    for owner, name in (
        (pyarrow.acero, "_group_by"),
        (pq.ParquetFile, "read_row_groups"),
    ):
        whole = getattr(owner, name)
        before.append((owner, name, whole))
        setattr(owner, name, _alone(whole))
    for owner, name, instead in (
        (Supervised, "_ends_by", _dies),
        (threading.Thread, "start", _started_here),
    ):
        whole = getattr(owner, name)
        before.append((owner, name, whole))
        setattr(owner, name, instead(whole))
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        for module, attribute, value in before:
            setattr(module, attribute, value)
        if collecting:
            gc.enable()
