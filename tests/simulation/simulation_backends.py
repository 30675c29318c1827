"""The backends of the simulated world: in memory, watched, and reached over a network that fails in every way a network can.

Each call of a process goes through `Network.call`: it takes time, another task may run before and after it acts, and by the process's
own seeded choice it is refused (`Determinate`), lost without acting, done but not answered, done much later, or slow (`Indeterminate`
or just late). Bursts raise the rate for a while, partitions cut one process off from one backend. Rarely a read returns flipped bits.
The base stores act at once and tell `simulation_truth` about each change; they differ in abilities as real ones do, list page by
page while others write, and may answer ``head`` with an entry that is not the newest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from simulation_world import MS, SECOND, Process, World

from mzsql.location import (
    Determinate,
    Indeterminate,
    LocationError,
    UsageError,
    Versioned,
    blob_around,
    consensus_around,
)
from mzsql.location.mem import MemBlob, MemConsensus

if TYPE_CHECKING:
    from simulation_truth import Truths

T = TypeVar("T")

FAULTS = ("refused", "lost", "unanswered", "late", "slow", "flipped")
_CHANGES = {"set", "delete", "delete_many", "compare_and_set", "truncate"}
_READS = {"get", "get_range"}


class Network:
    """How calls of processes reach backends."""

    def __init__(self, world: World, kinds: Sequence[str], rate: float, latency_ms: float) -> None:
        self.world = world
        self.kinds = tuple(kinds)
        self.rate = rate
        self.latency_ms = latency_ms
        self.healed = False
        self.bursts: dict[str, tuple[int, float]] = {}
        self.cuts: dict[tuple[str, str], int] = {}
        self.late: list[Any] = []
        self.rngs: dict[str, random.Random] = {}

    def heal(self) -> None:
        """No more failures; calls still take time."""
        self.healed = True

    def around(self, process: Process, backend: str) -> Any:
        """What to do around each operation of one process on one backend."""

        def call(operation: str, act: Callable[[], T]) -> T:
            return self.call(process, backend, operation, act)

        self.rngs[process.name] = random.Random(f"{self.world.seed}/network/{process.name}")
        return call

    def _pause(self, rng: random.Random, factor: float = 1.0) -> None:
        ms = rng.expovariate(1 / self.latency_ms) * factor
        self.world.sleep(max(1, int(ms * MS)))

    def _fault(self, process: Process, backend: str, operation: str) -> str | None:
        world, rng = self.world, self.rngs[process.name]
        draw, kind = rng.random(), rng.choice(self.kinds) if self.kinds else None
        if self.healed or operation in ("wait", "list_keys"):
            return None
        if self.cuts.get((process.name, backend), 0) > world.now:
            return "cut"
        # Whoever adopts an object takes its bytes for what they are: nothing there tells them from flipped ones.
        adopting = world.current is not None and world.current.doing == "adopt"
        until, burst = self.bursts.get(backend, (0, 0.0))
        rate = burst if until > world.now else self.rate
        if draw >= rate or kind is None:
            return None
        if kind == "late" and operation not in _CHANGES:
            kind = "lost"
        if kind == "flipped" and (operation not in _READS or adopting or rng.random() > 0.5):
            kind = "slow"
        return kind

    def call(self, process: Process, backend: str, operation: str, act: Callable[[], T]) -> T:
        """One operation."""
        world = self.world
        task = world._task()
        assert task.process is process, "a process uses another one's backends"
        rng = self.rngs[process.name]
        kind = self._fault(process, backend, operation)
        if operation == "wait":
            return act()
        if kind is not None:
            world.coverage[f"fault {kind}"] += 1
        world.note(task.name, backend, operation, kind)
        self._pause(rng, 200.0 if kind == "slow" else 1.0)
        match kind:
            case "refused":
                raise Determinate("simulated: refused")
            case "lost":
                self._pause(rng, 20.0)
                raise Indeterminate("simulated: lost")
            case "cut":
                self._pause(rng, 50.0)
                raise rng.choice((Determinate, Indeterminate))("simulated: cut off")
            case "late":
                self._act_later(rng, task.doing, operation, act)
                self._pause(rng, 20.0)
                raise Indeterminate("simulated: no answer yet")
            case "unanswered":
                act()
                if operation == "compare_and_set" and rng.random() < 0.3:
                    # The connection is gone, and a new one is not made at once.
                    until = world.now + round(rng.choice((1, 4, 15)) * SECOND)
                    self.cuts[process.name, backend] = until
                    world.coverage["connection lost"] += 1
                self._pause(rng, 20.0)
                raise Indeterminate("simulated: no answer")
        result = act()
        self._pause(rng, 200.0 if kind == "slow" else 1.0)
        if kind == "flipped" and isinstance(result, bytes) and result:
            flipped = bytearray(result)
            flipped[rng.randrange(len(flipped))] ^= 1 << rng.randrange(8)
            task.process.flipped = True  # type: ignore[attr-defined]
            return bytes(flipped)  # type: ignore[return-value]
        return result

    def _act_later(
        self, rng: random.Random, doing: Any, operation: str, act: Callable[[], object]
    ) -> None:
        world = self.world
        pending = object()
        self.late.append(pending)

        def do() -> None:
            self.late.remove(pending)
            self.doing = doing
            world.note("late", operation)
            try:
                act()
            except (LocationError, UsageError) as failure:
                world.note("late", operation, type(failure).__name__)
            finally:
                self.doing = None

        world.at(int(rng.choice((30, 300, 3000, 30_000)) * rng.random() * MS) + 1, do)

    doing: Any = None
    """What the late operation acting now was for."""


class PlainBlob:
    """The least a Blob can be: no ranges, no paths."""

    def __init__(self, world: World, truths: Truths) -> None:
        self._inner = MemBlob()
        self._truths = truths
        self._world = world
        self.volatile: set[str] = set()

    def get(self, key: str) -> bytes | None:
        return self._inner.get(key)

    def set(self, key: str, value: bytes) -> None:
        before = self._inner.get(key)
        if before is not None and before != value:
            self._truths.fail(f"{key} was written twice, differently")
        self._inner.set(key, value)

    def delete(self, key: str) -> int | None:
        self._truths.deleting(key)
        return self._inner.delete(key)

    def list_keys_and_metadata(self, prefix: str) -> Iterator[tuple[str, int]]:
        last = ""
        while True:
            found = sorted(
                (key, size)
                for key, size in self._inner.list_keys_and_metadata(prefix)
                if key > last
            )
            if not found:
                return
            yield from found[:4]
            last = found[:4][-1][0]

    def close(self) -> None:
        """Nothing to release."""


class RangedBlob(PlainBlob):
    """A Blob that reads ranges."""

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        return self._inner.get_range(key, offset, length)


class StoreBlob(RangedBlob):
    """As an object store: many deletions in one request, of which any may be done when it fails."""

    def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.delete(key)


class FileLikeBlob(RangedBlob):
    """As files: what others write by path must be made durable before it is named."""

    def make_durable(self, keys: Sequence[str]) -> None:
        self.volatile.difference_update(keys)


BLOBS: dict[str, type[PlainBlob]] = {
    "plain": PlainBlob,
    "ranged": RangedBlob,
    "store": StoreBlob,
    "files": FileLikeBlob,
}


class PolledConsensus:
    """A Consensus whose followers poll; ``head`` may lag."""

    def __init__(self, world: World, truths: Truths, stale: float) -> None:
        self.inner = MemConsensus()
        self._world = world
        self._truths = truths
        self._stale = stale
        self._rng = random.Random(f"{world.seed}/consensus")
        self._before: dict[str, Versioned] = {}

    def head(self, key: str) -> Versioned | None:
        found = self.inner.head(key)
        if self._rng.random() < self._stale and key in self._before:
            self._world.coverage["stale head"] += 1
            return self._before[key]
        return found

    def compare_and_set(self, key: str, expected: int | None, new: Versioned) -> bool:
        committed = self.inner.compare_and_set(key, expected, new)
        if committed:
            # What lags, lags by some entries, now and then.
            if self._rng.random() < 0.3 or key not in self._before:
                self._before[key] = Versioned(new.seqno, bytes(new.data))
            self._truths.committed(key, new)
        return committed

    def scan(self, key: str, from_seqno: int, limit: int) -> list[Versioned]:
        return self.inner.scan(key, from_seqno, limit)

    def truncate(self, key: str, seqno: int) -> int:
        removed = self.inner.truncate(key, seqno)
        self._truths.truncated(key, seqno)
        return removed

    def list_keys(self) -> Iterator[str]:
        return self.inner.list_keys()

    def close(self) -> None:
        """Nothing to release."""


class WaitingConsensus(PolledConsensus):
    """A Consensus that tells its followers."""

    def __init__(self, world: World, truths: Truths, stale: float) -> None:
        super().__init__(world, truths, stale)
        self._waiting: dict[str, list[Any]] = {}

    def compare_and_set(self, key: str, expected: int | None, new: Versioned) -> bool:
        committed = super().compare_and_set(key, expected, new)
        if committed:
            for task in self._waiting.get(key, []):
                self._world.wake(task)
        return committed

    def wait(self, key: str, after_seqno: int, timeout: float) -> bool:
        world = self._world
        head = self.inner.head(key)
        if head is None or head.seqno <= after_seqno:
            waiting, task = self._waiting.setdefault(key, []), world._task()
            waiting.append(task)
            try:
                world.park(timeout)
            finally:
                waiting.remove(task)
            head = self.inner.head(key)
        return head is not None and head.seqno > after_seqno


CONSENSUS: dict[str, type[PolledConsensus]] = {
    "polled": PolledConsensus,
    "waiting": WaitingConsensus,
}


def reached_by(network: Network, process: Process, blob: Any, consensus: Any) -> tuple[Any, Any]:
    """Both backends as one process reaches them."""
    return (
        blob_around(blob, network.around(process, "blob")),
        consensus_around(consensus, network.around(process, "consensus")),
    )


__all__ = ["BLOBS", "CONSENSUS", "FAULTS", "MS", "SECOND", "Network", "reached_by"]
