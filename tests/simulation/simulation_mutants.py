"""Known-bad variants of persist and of the stores below it: what the simulation is worth is how many of them it finds.

All 32 are found within 129 seeds, 24 of them within 5; the rare ones take a flipped bit that decodes, or a doubt that outlives a lease.

Each mutant is a patch: owner, attribute, and what takes its place, made from what was there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa
from simulation_backends import PolledConsensus
from simulation_run import Plan, play

from mzsql.location import Determinate, Indeterminate, UsageError, Versioned
from mzsql.location.mem import MemConsensus
from mzsql.persist import (
    BufferedWriter,
    CachedBlob,
    UpperMismatch,
    appending,
    buffered,
    building,
    compaction,
    deciding,
    fetch,
    machine,
    parts,
    shard_maintenance,
)
from mzsql.persist.ages import Ages
from mzsql.persist.blocks import Blocks
from mzsql.persist.cache import _Memory
from mzsql.persist.commands import CompareAndAppend, ExpireReader, Transition
from mzsql.persist.leases import ReaderLease
from mzsql.persist.pushdown import Pushdown
from mzsql.persist.shard_reports import object_time
from mzsql.persist.state import ShardState
from mzsql.persist.watch import Sighting
from mzsql.repr.frontier import join

Made = Callable[[Any], Any]
Patch = tuple[Any, str, Made]


def _blind_set(whole: Any) -> Any:
    """The newest entry is written over, whatever was expected."""

    def compare_and_set(self: Any, key: str, expected: int | None, new: Versioned) -> bool:
        log = self._logs.setdefault(key, [])
        while log and log[-1].seqno >= new.seqno:
            log.pop()
        return bool(whole(self, key, expected, new))

    return compare_and_set


def _lost_set(whole: Any) -> Any:
    """Some appends are acknowledged and not kept."""

    def compare_and_set(self: Any, key: str, expected: int | None, new: Versioned) -> bool:
        head = self.inner.head(key)
        if head is not None and head.seqno == expected and new.seqno % 7 == 6:
            return True
        return bool(whole(self, key, expected, new))

    return compare_and_set


def _without_token(whole: Any) -> Any:
    def compare_and_append(state: Any, command: Any, base: Any) -> Any:
        return whole(
            state,
            msgspec.structs.replace(command, token=f"{command.token}{state.seqno}"),
            base,
        )

    return compare_and_append


def _any_upper(whole: Any) -> Any:
    """Whoever is late appends at the upper there is."""

    def compare_and_append(state: Any, command: Any, base: Any) -> Any:
        if command.lower != state.upper and state.upper is not None and command.upper is not None:
            beyond = max(command.upper, state.upper + 1)
            command = msgspec.structs.replace(command, lower=state.upper, upper=beyond)
        return whole(state, command, base)

    return compare_and_append


def _never_in_doubt(whole: Any) -> Any:
    def timed_out(self: Any, *what: Any) -> Any:
        return Determinate(str(whole(self, *what)))

    return timed_out


def _no_ambiguity(whole: Any) -> Any:
    def raise_if_ambiguous(*_: Any) -> None:
        """Whatever became of the writer."""

    assert whole is not None
    return raise_if_ambiguous


def _no_holds(whole: Any) -> Any:
    assert whole is not None
    return property(lambda self: self.seqno)


def _loses_a_row(whole: Any) -> Any:
    def consolidate(table: pa.Table, key: Any = None) -> pa.Table:
        found = whole(table, key)
        return found.slice(1) if found.num_rows > 3 else found

    return consolidate


def _merges_beyond_since(whole: Any) -> Any:
    return lambda table, floor: whole(table, floor + 1)


def _expiry_moves_since(whole: Any) -> Any:
    def transition(state: Any, command: Any, now: int, *more: Any, **named: Any) -> Any:
        step = whole(state, command, now, *more, **named)
        diff = step.diff
        if diff is None or not any(reader is None for reader in diff.readers.values()):
            return step
        kept = [r.since for i, r in state.readers.items() if i not in diff.readers]
        since = (
            state.upper
            if not kept
            else join(
                state.since,
                min((s for s in kept if s is not None), default=state.since),
            )
        )
        if since is None or isinstance(command, ExpireReader):
            return step
        return Transition(
            msgspec.structs.replace(diff, since=join(state.since, since)), step.result
        )

    return transition


def _forgets_holds(whole: Any) -> Any:
    def advance_since(state: Any, diff: Any, holds: Any, **more: Any) -> Any:
        return whole(state, diff, holds[-1:], **more)

    return advance_since


def _nothing(whole: Any) -> Any:
    assert whole is not None
    return lambda *_, **__: None


def _truncates_all(whole: Any) -> Any:
    def truncate(self: Any, key: str, seqno: int) -> int:
        assert seqno >= 0
        head = self.inner.head(key)
        return int(whole(self, key, head.seqno))

    return truncate


def _deletes_inputs_first(whole: Any) -> Any:
    def apply_merge(opened: Any, state: Any, run: Any, deadline: Any) -> Any:
        keys = [key for batch in run for key in batch.blob_keys]
        done = whole(opened, state, run, deadline)
        if done:
            parts.delete_objects(opened.context, keys)
        return done

    return apply_merge


def _no_wait(whole: Any) -> Any:
    def wait_until(self: Any, satisfied: Any, deadline: Any) -> Any:
        assert satisfied is not None
        state = self.fetch(deadline)
        return (
            state
            if not isinstance(state.upper, int)
            else msgspec.structs.replace(state, upper=state.upper + 3)
        )

    assert whole is not None
    return wait_until


def _since_goes_back(whole: Any) -> Any:
    def downgrade_since(state: Any, command: Any, base: Any) -> Any:
        step = whole(state, command, base)
        if step.diff is not None and isinstance(step.diff.since, int) and step.diff.since > 1:
            return Transition(
                msgspec.structs.replace(
                    step.diff, since=(state.since or 0) - 1 if state.since else 0
                ),
                step.result,
            )
        return step

    return downgrade_since


def _forgets_outstanding(whole: Any) -> Any:
    assert whole is not None
    return lambda self: self._opened.shard.state.seqno


def _discards_in_doubt(whole: Any) -> Any:
    def append_own(self: Any, batch: Any, expected: Any, upper: Any, deadline: Any) -> None:
        try:
            whole(self, batch, expected, upper, deadline)
        except Indeterminate:
            self._builder.discard(batch.parts, deadline)
            raise

    return append_own


def _swallows_failed_uploads(whole: Any) -> Any:
    def write_part(self: Any, *what: Any) -> Any:
        blob = self._context.blob

        class Swallowing:
            def set(self, key: str, value: bytes) -> None:
                with contextlib.suppress(Determinate, Indeterminate):
                    blob.set(key, value)

            def __getattr__(self, name: str) -> Any:
                return getattr(blob, name)

        before = self._context
        self._context = msgspec.structs.replace(before, blob=Swallowing())
        try:
            return whole(self, *what)
        finally:
            self._context = before

    return write_part


def _keeps_all_definite(whole: Any) -> Any:
    assert whole is not None
    return lambda _, batch, lower, __: msgspec.structs.replace(batch, lower=lower)


def _ends_early(whole: Any) -> Any:
    def within(self: Any, lower: int, upper: Any) -> Any:
        return whole(self, lower, upper - 1 if lower == 0 and upper else upper)

    return within


def _begins_early(whole: Any) -> Any:
    return lambda self, lower, upper: whole(self, max(0, lower - 1), upper)


def _skips_groups(whole: Any) -> Any:
    """Parts and row groups whose last time is the first one asked for are left out."""
    return lambda self, first, last: last > self.lower and whole(self, first, last)


def _ignores_leases(whole: Any) -> Any:
    """Every reader and writer but those open here is taken for expired."""

    def transition(
        state: Any,
        command: Any,
        now: int,
        version: str,
        sightings: Mapping[str, Sighting],
        **named: Any,
    ) -> Any:
        if isinstance(command, CompareAndAppend):
            sightings = {
                i: msgspec.structs.replace(seen, unseen_ms=seen.unseen_ms + 200_000)
                for i, seen in sightings.items()
            }
        return whole(state, command, now, version, sightings, **named)

    return transition


def _by_the_wall_clock(whole: Any) -> Any:
    """A lease is judged by what the clock shows of whoever sends a command."""

    def transition(
        state: Any,
        command: Any,
        now: int,
        version: str,
        sightings: Mapping[str, Sighting],
        **named: Any,
    ) -> Any:
        handles = {**state.readers, **state.writers}
        told = {
            i: Sighting(handle.heartbeat_ms, max(0, now - handle.heartbeat_ms))
            for i, handle in handles.items()
            if i in sightings
        }
        return whole(state, command, now, version, told, **named)

    return transition


def _registers_again(whole: Any) -> Any:
    """A writer that was expired appends as if it were a new one."""

    def compare_and_append(state: Any, command: Any, base: Any) -> Any:
        forgetful = msgspec.structs.replace(state, expired={})
        return whole(forgetful, msgspec.structs.replace(command, registered=False), base)

    return compare_and_append


def _tells_nobody(whole: Any) -> Any:
    """Those whose leases ran out leave the state without a record."""

    def base(*what: Any) -> Any:
        return msgspec.structs.replace(whole(*what), expired={})

    return base


def _ends_for_all(whole: Any) -> Any:
    """A shard is finalized whoever holds it."""
    assert whole is not None
    return lambda *_: []


def _stale_refusals(whole: Any) -> Any:
    """A usage error is believed from a cached state."""

    def check_upper(self: Any, expected: Any, deadline: Any) -> None:
        upper = self._opened.shard.state.upper
        if upper != expected:
            raise UpperMismatch(self._opened.shard_id, expected, upper)
        whole(self, expected, deadline)

    return check_upper


class _Equal:
    """What equals everything."""

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def _no_checksum(whole: Any) -> Any:
    assert whole is not None
    return lambda _: _Equal()


def _intact(whole: Any) -> Any:
    assert whole is not None
    return lambda *_: True


def _rollup_of_before(whole: Any) -> Any:
    """A rollup is named by the wrong state."""

    def roll_up(opened: Any, state: Any, deadline: Any) -> Any:
        return whole(opened, msgspec.structs.replace(state, trace=state.trace[:-1]), deadline)

    return roll_up


def _never_collects(whole: Any) -> Any:
    return lambda state, command, base: (
        Transition(None) if command.garbage else whole(state, command, base)
    )


def _never_merges(whole: Any) -> Any:
    assert whole is not None
    return lambda *_, **__: None


def _drops_what_failed(whole: Any) -> Any:
    assert whole is not None
    return lambda *_: None


def _puts_back_twice(whole: Any) -> Any:
    def put_back(self: Any, older: Any) -> None:
        for worker, pieces in older.updates.items():
            older.updates[worker] = [*pieces, *pieces]
        whole(self, older)

    return put_back


def _acknowledges_failures(whole: Any) -> Any:
    """Durable is what was tried."""

    def append(self: Any, *what: Any) -> None:
        with contextlib.suppress(Determinate, Indeterminate):
            whole(self, *what)

    return append


def _closes_at_once(whole: Any) -> Any:
    assert whole is not None
    return lambda self, **_: self._stop()


def _goes_on_in_doubt(whole: Any) -> Any:
    """An append that may have happened is tried again as another one."""

    def append(self: Any, *what: Any) -> None:
        try:
            whole(self, *what)
        except Indeterminate as failure:
            raise Determinate(str(failure)) from failure

    return append


def _first_of_all_stretches(whole: Any) -> Any:
    """Any stretch of an object is served by the first one that was kept."""

    def get(self: Any, wanted: Any) -> Any:
        places = sorted(self._of_key.get(wanted.key, ()))
        return whole(self, places[0] if places else wanted)

    return get


def _keeps_ranges_as_objects(whole: Any) -> Any:
    return lambda self, place, value: whole(self, place._replace(offset=0, length=-1), value)


def _takes_no_care_of_copies(whole: Any) -> Any:
    assert whole is not None
    return lambda *_: None


def _ages_by_name(whole: Any) -> Any:
    """A leak's age is what the finder's wall clock makes of its name."""

    def meet(self: Any, name: str, in_round: int = 0) -> int:
        whole(self, name, in_round)
        named = object_time(name)
        return 0 if named is None else int(self._clock.now_ms() - named)

    return meet


BUFFERED_MUTANTS: dict[str, list[Patch]] = {
    "what failed is not put back": [(BufferedWriter, "_put_back", _drops_what_failed)],
    "what failed is put back twice": [(BufferedWriter, "_put_back", _puts_back_twice)],
    "failed appends are acknowledged": [(BufferedWriter, "_append", _acknowledges_failures)],
    "doubtful appends are tried again": [(BufferedWriter, "_append", _goes_on_in_doubt)],
    "a flush does not wait": [(BufferedWriter, "_wait_while_appending", _nothing)],
    "closing does not flush": [(BufferedWriter, "close", _closes_at_once)],
    "pushes are not checked": [(buffered, "normalize", lambda _: lambda table, *_: table)],
    "a cache keeps ranges as objects": [(_Memory, "put", _keeps_ranges_as_objects)],
    "a cache takes all ranges for one": [(_Memory, "get", _first_of_all_stretches)],
    "a cache keeps what came damaged": [(CachedBlob, "forget", _takes_no_care_of_copies)],
}
"""Those that need buffered writers or caches, see `simulation_plans`."""

MUTANTS: dict[str, list[Patch]] = {
    "compare_and_set is blind": [(MemConsensus, "compare_and_set", _blind_set)],
    "compare_and_set is acknowledged and lost": [(PolledConsensus, "compare_and_set", _lost_set)],
    "truncation takes the whole log": [(PolledConsensus, "truncate", _truncates_all)],
    "tokens are drawn for each try": [(deciding, "_compare_and_append", _without_token)],
    "any upper will do": [(deciding, "_compare_and_append", _any_upper)],
    "doubt is denied": [(machine.Shard, "_timed_out", _never_in_doubt)],
    "an expired writer is not in doubt": [(machine.Shard, "_raise_if_ambiguous", _no_ambiguity)],
    "a stale upper refuses": [(appending.Appender, "check_upper", _stale_refusals)],
    "collection ignores readers": [(ShardState, "seqno_since", _no_holds)],
    "a merge loses a row": [(compaction, "consolidate", _loses_a_row)],
    "a merge advances times beyond since": [(compaction, "advance_times", _merges_beyond_since)],
    "a merge deletes its inputs itself": [
        (shard_maintenance, "apply_merge", _deletes_inputs_first)
    ],
    "expiry moves since": [(machine, "transition", _expiry_moves_since)],
    "leases are too short": [(machine, "transition", _ignores_leases)],
    "leases are judged by wall clocks": [(machine, "transition", _by_the_wall_clock)],
    "leaks are judged by wall clocks": [(Ages, "meet", _ages_by_name)],
    "expired writers are registered in silence": [
        (deciding, "_compare_and_append", _registers_again)
    ],
    "expiry is not recorded": [(deciding, "_base", _tells_nobody)],
    "shards end whoever holds them": [(deciding, "_holders", _ends_for_all)],
    "since passes other readers": [(deciding, "_advance_since", _forgets_holds)],
    "since goes back": [(deciding, "_downgrade_since", _since_goes_back)],
    "holds are not fenced": [(deciding, "_check_token", _nothing)],
    "reads do not wait": [(machine.Shard, "wait_until", _no_wait)],
    "reads below since are served": [(ReaderLease, "check_since", _nothing)],
    "parts being read are let go": [(ReaderLease, "_outstanding", _forgets_outstanding)],
    "snapshots end a moment early": [(Pushdown, "within", _ends_early)],
    "listens overlap": [(Pushdown, "within", _begins_early)],
    "parts are skipped too eagerly": [(Pushdown, "_meets", _skips_groups)],
    "definite appends repeat": [(building.BatchBuilder, "without_below", _keeps_all_definite)],
    "objects are discarded in doubt": [(appending.Appender, "append_own", _discards_in_doubt)],
    "a failed upload is taken for done": [(parts.PartWriter, "_write", _swallows_failed_uploads)],
    "checksums are not compared": [
        (fetch, "checksum", _no_checksum),
        (Blocks, "intact", _intact),
    ],
    "a rollup lacks a batch": [(shard_maintenance, "_roll_up", _rollup_of_before)],
    "garbage is never forgotten": [(deciding, "_collect", _never_collects)],
    "nothing is ever merged": [(shard_maintenance, "choose", _never_merges)],
    "nothing is ever deleted": [(shard_maintenance, "delete_objects", _nothing)],
}

FOUND_BY: dict[str, int] = {
    "tokens are drawn for each try": 29,
    "doubt is denied": 45,
    "an expired writer is not in doubt": 49,
    "leaks are judged by wall clocks": 36,
    "a stale upper refuses": 1,
    "collection ignores readers": 17,
    "a merge loses a row": 2,
    "a merge deletes its inputs itself": 20,
    "since passes other readers": 1,
    "since goes back": 1,
    "holds are not fenced": 4,
    "reads do not wait": 1,
    "reads below since are served": 2,
    "listens overlap": 1,
    "parts are skipped too eagerly": 1,
    "objects are discarded in doubt": 57,
    "a failed upload is taken for done": 3,
    "checksums are not compared": 176,
    "expired writers are registered in silence": 3,
    "shards end whoever holds them": 2,
}
"""The first seed that finds a mutant, where it is not 0: where to look before searching from the first seed on."""


@contextlib.contextmanager
def mutated(name: str) -> Iterator[None]:
    """While it lasts, persist has the fault."""
    before: list[tuple[Any, str, Any]] = []
    try:
        for owner, attribute, make in {**MUTANTS, **BUFFERED_MUTANTS}[name]:
            # What is not there is no fault that could be found.
            assert attribute in owner.__dict__, f"{owner} has no {attribute} any more"
            whole = owner.__dict__[attribute]
            before.append((owner, attribute, whole))
            setattr(owner, attribute, make(whole))
        yield
    finally:
        for owner, attribute, whole in before:
            setattr(owner, attribute, whole)


__all__ = ["BUFFERED_MUTANTS", "FOUND_BY", "MUTANTS", "UsageError", "mutated"]


def is_found(name: str, draw: Callable[[int], Plan], seed: int) -> bool:
    """Whether the schedule that is drawn of a seed fails with the mutant, and only with it."""
    try:
        with mutated(name):
            play(draw(seed))
    except (TypeError, AttributeError):
        raise  # the mutant does not fit what it takes the place of any more
    except Exception:
        play(draw(seed))  # which is the mutant's fault alone
        return True
    return False
