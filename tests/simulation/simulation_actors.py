"""What the processes of the simulated world do, by name; the ones here neither write nor read: they hold, compact, finalize."""

from __future__ import annotations

from typing import Any

from simulation_actor import (
    SCHEMAS,
    Actor,
    Budget,
    Shared,
    definite_updates,
    drawn_updates,
)
from simulation_buffers import Buffering
from simulation_readers import Listener, Reader
from simulation_world import Violation
from simulation_writers import Appender, Batcher, Definite

from mzsql.persist import (
    ExpiredHandle,
    ShardFinalized,
    ShardHeld,
)
from mzsql.repr.errors import Fenced


class Compactor(Actor):
    """Maintains the shard from outside."""

    def step(self) -> None:
        if self.truth.state is None:
            return
        full = self.rng.random() < 0.3
        report = self.client.maintain(self.shard.shard_id, full=full, timeout=self.timeout)
        self.count("maintained")
        self.world.coverage["merges of compactors"] += report.merges


class Finder(Actor):
    """Looks for leaks and deletes them, by whatever its wall clock shows."""

    def step(self) -> None:
        if self.truth.state is None:
            return
        shard_ids = [self.shard.shard_id]
        found = list(self.client.find_leaks(shard_ids=shard_ids, delete=True, timeout=self.timeout))
        self.count("leaks looked for")
        self.world.coverage["leaks in sight"] += len(found)


class Holder(Actor):
    """Owns a critical hold until another process takes it over."""

    _hold: Any = None

    def step(self) -> None:
        rng, truth = self.rng, self.truth
        shard_id = self.shard.shard_id
        if self._hold is None:
            if truth.state is None:
                self.writer()
            self._hold = self.client.open_critical_reader(shard_id, "hold", timeout=self.timeout)
            self.count("hold taken")
            return
        hold = self._hold
        try:
            task = self.world.current
            assert task is not None
            if rng.random() < 0.1:
                task.doing = f"hold {hold.token}"
                try:
                    hold.release(timeout=self.timeout)
                finally:
                    task.doing = None
                self._hold = None
                self.count("hold released")
                return
            since, upper = hold.since, truth.upper
            if since is None or upper is None:
                return
            to = rng.randint(since, max(since, upper - 1))
            truth.ask_since(to)
            task.doing = f"hold {hold.token}"
            try:
                hold.downgrade_since(to, timeout=self.timeout)
            finally:
                task.doing = None
            self.count("hold moved")
        except Fenced as failure:
            state = truth.state
            assert state is not None
            held = state.critical.get("hold")
            if held is not None and held.token == hold.token:
                raise Violation("fenced by nobody") from failure
            self._hold = None
            self.count("fenced")
        except ShardFinalized:
            raise
        except ExpiredHandle:
            self._hold = None
            self.count("hold was released")


class Finalizer(Actor):
    """Ends the shard, once, near its end."""

    def step(self) -> None:
        if self.run.seconds < self.run.plan.finalize_after or self.truth.state is None:
            return
        self.truth.finalize_asked = True
        if self.rng.random() < 0.4:
            held = self.client.retire(self.shard.shard_id, timeout=self.timeout)
            self.count("retired later" if held else "retired")
            return
        try:
            self.client.finalize(self.shard.shard_id, timeout=self.timeout)
        except ShardHeld as held_by:
            if not held_by.holders:
                raise
            self.count("finalization refused")
        else:
            self.count("finalized by call")


ACTORS: dict[str, type[Actor]] = {
    "appender": Appender,
    "batcher": Batcher,
    "buffering": Buffering,
    "compactor": Compactor,
    "finder": Finder,
    "definite": Definite,
    "finalizer": Finalizer,
    "holder": Holder,
    "listener": Listener,
    "reader": Reader,
}

__all__ = ["ACTORS", "SCHEMAS", "Actor", "Budget", "Shared", "definite_updates", "drawn_updates"]
