"""What really happened, as the base stores saw it, and every promise checked against it.

The log in Consensus is the order of things: each entry, the moment it is committed, is matched with the call that wanted it, and its
rows, as the caller gave them, join a plain list of ``(row, time, diff)``. Everything read is compared with that list, never with the
program's own parts. Checked at each commit: seqno by one, walltime rising, since and upper never back, since beyond nobody's hold and
nowhere nobody asked for it, no reader gone before its lease, no object named that is not there, no call committed twice or after it
was said to have failed. Checked at each deletion: nobody can still want the object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec
import pyarrow as pa
from simulation_world import MS, NEWER, Process, Violation, World

from mzsql.location import Versioned
from mzsql.persist import BlobPart, KeySpec
from mzsql.persist.codec import decode_entry
from mzsql.persist.state import ShardState, StateDiff
from mzsql.persist.transitions import apply_diff
from mzsql.persist.versions import release
from mzsql.repr.frontier import Frontier, less_equal, less_than, show

Row = tuple[Any, ...]
Update = tuple[Row, int, int]


class Attempt(msgspec.Struct):
    """A call that wants the shard to change by these updates."""

    name: str
    lower: Frontier
    upper: Frontier
    updates: list[Update]
    definite: bool = False
    """Whether what lies below the upper at commit is dropped."""
    outcome: str = "open"
    """``open``, ``done``, ``failed`` or ``maybe``."""
    commits: int = 0
    expires: bool = False
    """Whether it gives a handle up."""


class Truth:
    """One shard."""

    def __init__(self, world: World, shard_id: str, key: KeySpec | None) -> None:
        self.world = world
        self.shard_id = shard_id
        self.key = key
        self.columns: list[str] = []
        self.state: ShardState | None = None
        self.updates: list[Update] = []
        self.uppers: list[tuple[int, Frontier]] = []
        """When, in steps of the log of events, the upper became what."""
        self.asked_since: Frontier = 0
        """The latest since that anybody asked for."""
        self.attempts: list[Attempt] = []
        self.finalize_asked = False
        self._beats: dict[str, tuple[int, int]] = {}
        """By handle: its last renewal, and when that was committed."""
        self._lapsed: set[str] = set()
        self.registered_by: dict[str, Process] = {}

    @property
    def upper(self) -> Frontier:
        """The upper now."""
        return 0 if self.state is None else self.state.upper

    @property
    def since(self) -> Frontier:
        """The since now."""
        return 0 if self.state is None else self.state.since

    @property
    def finalized(self) -> bool:
        """Whether it is a tombstone."""
        return self.state is not None and self.state.finalized

    @property
    def ending(self) -> bool:
        """Whether it is a tombstone, or to be one as soon as nobody holds it."""
        return self.state is not None and (self.state.finalized or self.state.ending)

    def outdated(self, process: Process) -> bool:
        """Whether a newer program than the process's has changed the shard."""
        state = self.state
        return (
            state is not None and release(state.applier_version)[:2] > release(process.version)[:2]
        )

    def fail(self, what: str) -> None:
        """Say what promise was broken."""
        raise Violation(f"shard {self.shard_id[:5]}: {what}")

    def ask_since(self, frontier: Frontier) -> None:
        """Somebody is about to give up reading below this."""
        if less_than(self.asked_since, frontier):
            self.asked_since = frontier

    def upper_since(self, moment: int) -> list[Frontier]:
        """Every upper there was since a moment."""
        before = [upper for when, upper in self.uppers if when <= moment]
        return [
            *before[-1:],
            *(upper for when, upper in self.uppers if when > moment),
        ] or [0]

    # What is committed.

    def committed(self, new: Versioned, doing: Any, objects: set[str], volatile: set[str]) -> None:
        """The log grew by one entry."""
        old = self.state
        task = self.world.current
        if task is not None and self.outdated(task.process):
            self.fail(f"{task.name} changed what a newer program had taken over")
        entry = decode_entry(new.data, self.shard_id, new.seqno, version=NEWER)
        if entry.state is not None:
            state, diff = entry.state, None
        else:
            assert old is not None
            assert entry.diff is not None
            if entry.diff.seqno != old.seqno + 1:
                self.fail(f"a diff to {entry.diff.seqno} follows the state at {old.seqno}")
            state, diff = apply_diff(old, entry.diff), entry.diff
        if state.seqno != new.seqno:
            self.fail(f"the entry {new.seqno} holds the state {state.seqno}")
        self.state = state
        named = {p.key for b in state.trace for p in b.parts if isinstance(p, BlobPart)}
        if state.rollups:
            named.add(state.rollups[state.latest_rollup])
        if gone := named - objects:
            self.fail(f"the state {state.seqno} names {sorted(gone)}, which are not there")
        if named & volatile:
            self.fail(f"the state {state.seqno} names objects that power loss would take away")
        if old is None:
            self.uppers.append((len(self.world.log), state.upper))
            # Whoever makes a shard may read it from then on.
            self._note_leases(frozenset(), state)
            return
        self._check_frontiers(old, state, doing)
        self._check_readers(old, state, doing)
        self._check_append(old, state, diff, doing)
        self._count(old, state, diff)

    def _check_frontiers(self, old: ShardState, state: ShardState, doing: Any) -> None:
        if state.walltime_ms <= old.walltime_ms:
            self.fail("the wall time of the state did not rise")
        if not less_equal(old.since, state.since):
            self.fail(f"since went back from {show(old.since)} to {show(state.since)}")
        if not less_equal(old.upper, state.upper):
            self.fail(f"the upper went back from {show(old.upper)} to {show(state.upper)}")
        if state.finalized:
            if not old.finalized:
                self._check_unheld(old, doing)
            if not old.finalized and not self.finalize_asked:
                ended = less_equal(None, self.asked_since) and any(
                    a.upper is None and a.outcome != "failed" for a in self.attempts
                )
                if not ended:
                    self.fail("the shard was finalized, which nobody asked for")
            return
        if less_than(self.asked_since, state.since):
            self.fail(f"since became {show(state.since)}, which nobody asked for")
        for hold_id, hold in old.critical.items():
            now = state.critical.get(hold_id)
            moved = now is None or now.since != hold.since
            if moved and doing != f"hold {hold.token}":
                self.fail(f"the hold {hold_id} was moved or released by {doing!r}, not its owner")
        for held in [*state.readers.values(), *state.critical.values()]:
            if not less_equal(state.since, held.since):
                self.fail(f"since {show(state.since)} passed a hold at {show(held.since)}")

    def _check_unheld(self, old: ShardState, doing: Any) -> None:
        """A shard ends by who holds it, or when nobody does."""
        task = self.world.current
        for hold_id, hold in old.critical.items():
            if hold.since is not None and doing != f"hold {hold.token}":
                self.fail(f"the shard was finalized although the hold {hold_id} stands")
        for reader_id, reader in old.readers.items():
            mine = task is not None and self.registered_by.get(reader_id) is task.process
            passed = (self.world.now - self._beats[reader_id][1]) / MS
            live = reader.since is not None and passed < reader.lease_ms * 0.98
            if live and not mine:
                self.fail(f"the shard was finalized although the reader {reader_id[:5]} holds it")

    def _check_readers(self, old: ShardState, state: ShardState, doing: Any) -> None:
        beats = self._beats
        self._note_leases(old.readers.keys(), state)
        if state.finalized:
            return
        given_up = isinstance(doing, Attempt) and doing.expires
        for kind, before, after in (
            ("reader", old.readers, state.readers),
            ("writer", old.writers, state.writers),
        ):
            for handle_id, handle in before.items():
                if handle_id in after or (given_up and handle_id not in state.expired):
                    continue
                passed = (self.world.now - beats[handle_id][1]) / MS
                if passed < handle.lease_ms * 0.98:
                    self.fail(f"the {kind} {handle_id[:5]} was expired before its lease was over")
                if handle_id not in state.expired:
                    self.fail(f"nothing says that the {kind} {handle_id[:5]} was expired")
                self._lapsed.add(handle_id)
                self.world.coverage[f"{kind} expired"] += 1

    def _note_leases(self, known: AbstractSet[str], state: ShardState) -> None:
        """Note who has registered beside the readers that were known, and who has renewed a lease."""
        leased = {**state.readers, **state.writers}
        if self.world.current is not None:
            for reader_id in state.readers.keys() - known:
                self.registered_by[reader_id] = self.world.current.process
        if back := self._lapsed.intersection(leased):
            self.fail(f"{sorted(back)}, which had expired, came back in silence")
        beats = self._beats
        self._beats = {
            i: beats[i]
            if i in beats and beats[i][0] == handle.heartbeat_ms
            else (handle.heartbeat_ms, self.world.now)
            for i, handle in leased.items()
        }

    def _check_append(
        self, old: ShardState, state: ShardState, diff: StateDiff | None, doing: Any
    ) -> None:
        # A heartbeat leaves the token of the last append.
        renewed = [
            writer
            for i, writer in ({} if diff is None else diff.writers).items()
            if writer is not None and (i not in old.writers or old.writers[i].token != writer.token)
        ]
        if not renewed and (state.upper == old.upper or state.finalized):
            if state.upper != old.upper:
                self.uppers.append((len(self.world.log), state.upper))
                if isinstance(doing, Attempt) and doing.upper is None:
                    doing.commits += 1
            return
        if not isinstance(doing, Attempt):
            self.fail(f"{doing!r} moved the upper to {show(state.upper)}")
        # What moves and adds nothing renews a lease only, as often as it likes.
        renews = state.upper == old.upper and diff is not None and not diff.added
        doing.commits += not (renews and doing.commits)
        if doing.commits > 1:
            self.fail(f"{doing.name} was committed twice")
        if doing.outcome in ("failed", "done"):
            self.fail(f"{doing.name} was committed after it had {doing.outcome}")
        if state.upper != doing.upper or (not doing.definite and old.upper != doing.lower):
            self.fail(f"{doing.name} moved the upper from {show(old.upper)} to {show(state.upper)}")
        self.updates += [u for u in doing.updates if less_equal(old.upper, u[1])]
        self.uppers.append((len(self.world.log), state.upper))

    def _count(self, old: ShardState, state: ShardState, diff: StateDiff | None) -> None:
        coverage = self.world.coverage
        if diff is None:
            coverage["finalized"] += not old.finalized
            return
        coverage["merge"] += bool(diff.removed)
        coverage["since moved"] += old.since != state.since
        for patched in diff.rollups.values():
            coverage["rollup added" if patched is not None else "rollup forgotten"] += 1
        coverage["garbage collected"] += bool(diff.collected)
        for batch in diff.added:
            if not diff.removed:
                inline = any(not isinstance(part, BlobPart) for part in batch.parts)
                coverage["append inline" if inline else "append in objects"] += 1
                coverage["append of several parts"] += len(batch.parts) > 1

    def deleting(self, key: str) -> None:
        """An object is about to be deleted, now."""
        state = self.state
        if state is None or state.finalized:
            return
        if any(p.key == key for b in state.trace for p in b.parts if isinstance(p, BlobPart)):
            self.fail(f"{key} is deleted while the state {state.seqno} names it")
        if state.rollups and state.rollups[state.latest_rollup] == key:
            self.fail(f"{key} is deleted, the latest rollup")
        held = min(
            (reader.seqno_hold for reader in state.readers.values()),
            default=state.seqno,
        )
        for seqno, keys in state.garbage.items():
            if key in keys and seqno > held:
                self.fail(f"{key} is deleted while a reader holds it")
        self.world.coverage["object deleted"] += 1

    def truncated(self, seqno: int) -> None:
        """The log lost its entries below ``seqno``."""
        state = self.state
        assert state is not None
        if seqno > (state.seqno if state.finalized else state.latest_rollup):
            self.fail(f"the log was truncated to {seqno}, beyond the latest rollup")
        self.world.coverage["log truncated"] += 1

    # What is read.

    def at(self, as_of: int) -> Counter[Row]:
        """The contents at a time."""
        return self._summed((row, 0, diff) for row, time, diff in self.updates if time <= as_of)

    def between(self, lower: int, upper: Frontier, floor: int) -> Counter[Row]:
        """The updates in a stretch of time, none of them below ``floor``."""
        return self._summed(
            (row, max(time, floor), diff)
            for row, time, diff in self.updates
            if lower <= time and less_than(time, upper)
        )

    def _summed(self, updates: Iterable[Update]) -> Counter[Row]:
        """{(row…, time): diff}; of a shard with an additive column {(row…, time): (sum, diff)}."""
        additive = () if self.key is None else self.key.additive
        summed: Any = Counter()
        if not additive:
            for row, time, diff in updates:
                summed[(*row, time)] += diff
            return Counter({row: diff for row, diff in summed.items() if diff})
        sums: dict[Row, list[int]] = {}
        for row, time, diff in updates:
            sum_ = sums.setdefault((*row[:-1], time), [0, 0])
            sum_[0] += row[-1]
            sum_[1] += diff
        return Counter({row: tuple(sum_) for row, sum_ in sums.items() if any(sum_)})  # type: ignore[misc]

    def compare(self, what: str, table: pa.Table, wanted: Counter[Row], floor: int | None) -> None:
        """Compare a table of updates with what it should hold; without ``floor``, whatever their times."""
        columns = [column.to_pylist() for column in table.columns]
        rows = list(zip(*columns, strict=True)) if columns else []
        found = self._summed(
            (tuple(row[:-2]), 0 if floor is None else max(row[-2], floor), row[-1]) for row in rows
        )
        if found != wanted:
            missing = {row: n for row, n in wanted.items() if found.get(row) != n}
            extra = {row: n for row, n in found.items() if wanted.get(row) != n}
            self.fail(f"{what} should hold {missing} where it holds {extra}")
        self.world.coverage["compared"] += 1


class Truths:
    """Every shard, and the objects."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.shards: dict[str, Truth] = {}
        self.blob: Any = None
        self.network: Any = None

    def fail(self, what: str) -> None:
        """Say what promise was broken."""
        raise Violation(what)

    def objects(self) -> set[str]:
        """Every object there is."""
        return set(self.blob._inner._objects)

    def committed(self, key: str, new: Versioned) -> None:
        """A log grew by one entry."""
        task = self.world.current
        doing = task.doing if task is not None else self.network.doing
        self.world.note("committed", key[:5], new.seqno, len(new.data))
        self.shards[key].committed(new, doing, self.objects(), self.blob.volatile)

    def truncated(self, key: str, seqno: int) -> None:
        """A log lost its entries below ``seqno``."""
        self.world.note("truncated", key[:5], seqno)
        self.shards[key].truncated(seqno)

    def deleting(self, key: str) -> None:
        """An object is about to be deleted."""
        self.world.note("deleting", key)
        truth = self.shards.get(key.partition("/")[0])
        if truth is not None:
            truth.deleting(key)
