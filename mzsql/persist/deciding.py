"""What a command does to a shard's state: pure functions from a state and a command to a diff and a result.

Promise: `transition` depends on nothing but its arguments, changes nothing, and is idempotent: a command that was
already committed (seen after an error that left this open) is recognised and not applied again. A command that does
not fit the state raises a usage error, and every command of a program too old for the shard is refused. Readers and
writers whose lease has run out, as seen by the process that sends the command (`mzsql.persist.watch`), are removed
from the state by the next command, which records them as expired: what they try from then on is refused, and never
registers them again. Their expiry does not move since; only a downgrade does. A command proves that the handle it
belongs to is alive, so it never expires that one. Once since is empty, no batch stays in the state: what is appended
from then on is garbage at once. A shard ends when nobody holds it: what critical and leased readers hold is never
taken from them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec
from msgspec import UNSET

from mzsql.location.errors import UsageError
from mzsql.persist.batch import BlobPart, InlinePart, Part
from mzsql.persist.commands import (
    AddRollup,
    ApplyMerge,
    Collect,
    Command,
    CompareAndAppend,
    DowngradeCritical,
    DowngradeSince,
    ExpireReader,
    ExpireWriter,
    Finalize,
    InlineOverflow,
    RegisterCritical,
    RegisterReader,
    ReleaseCritical,
    RenewWriter,
    Retire,
    Sweep,
    Transition,
)
from mzsql.persist.errors import (
    CRITICAL,
    ExpiredHandle,
    Holder,
    InvalidBounds,
    ShardFinalized,
    ShardHeld,
    UpperMismatch,
)
from mzsql.persist.state import (
    EXPIRED_KEPT,
    CriticalHold,
    Expired,
    LeasedReader,
    ShardState,
    StateDiff,
    TraceBatch,
    Writer,
)
from mzsql.persist.versions import check_version, newer
from mzsql.persist.watch import Sighting, lapsed
from mzsql.repr.errors import Fenced
from mzsql.repr.frontier import Frontier, is_timestamp, join, less_equal, show
from mzsql.repr.version import VERSION


def transition(
    state: ShardState,
    command: Command,
    now_ms: int,
    version: str = VERSION,
    sightings: Mapping[str, Sighting] | None = None,
    *,
    takes_over: bool = True,
) -> Transition:
    """Return what ``command``, sent by a program of ``version``, does to ``state``.

    Args:
        state: the shard's state.
        command: what to do.
        now_ms: the wall time, which the state records for people; nothing is decided by it.
        version: the program's version.
        sightings: how long the sending process has seen other processes' handles without a renewal, by handle id.
        takes_over: whether an append, or the end of the shard, marks it as changed by ``version``.

    Raises:
        UsageError: the command does not fit the state.
        NewerVersion: a newer program has changed the shard, which this one must not touch.
        InlineOverflow: the state would carry too many inline bytes.
    """
    check_version(version, state.applier_version, f"shard {state.shard_id}")
    base = _base(state, command, now_ms, sightings or {})
    # Only a change of the contents, or the end, takes the shard over, so that reading or leasing by a newer program does not lock
    # out an older one.
    changes = isinstance(command, CompareAndAppend | Finalize | Retire)
    if takes_over and changes and newer(version, state.applier_version):
        base = msgspec.structs.replace(base, applier_version=version)
    match command:
        case CompareAndAppend():
            return _compare_and_append(state, command, base)
        case RegisterReader():
            return _register_reader(state, command, base)
        case RenewWriter():
            return _renew_writer(state, command, base)
        case DowngradeSince():
            return _downgrade_since(state, command, base)
        case ExpireReader():
            if command.reader_id not in state.readers:
                return Transition(None)
            return Transition(_let_go(state, _with_reader(base, command.reader_id, None)))
        case ExpireWriter():
            if command.writer_id not in state.writers:
                return Transition(None)
            return Transition(_with_writer(base, command.writer_id, None))
        case RegisterCritical():
            return _register_critical(state, command, base)
        case DowngradeCritical():
            return _downgrade_critical(state, command, base)
        case ReleaseCritical():
            hold = state.critical.get(command.reader_id)
            if hold is None:
                return Transition(None)
            _check_token(state, command.reader_id, hold, command.token)
            released = msgspec.structs.replace(base, critical={command.reader_id: None})
            return Transition(_let_go(state, released))
        case ApplyMerge():
            return _apply_merge(state, command, base)
        case AddRollup():
            if state.rollups.get(command.seqno) == command.key:
                return Transition(None, True)
            # An older rollup than the newest would never be read.
            if state.finalized or command.seqno <= state.latest_rollup:
                return Transition(None, False)
            diff = msgspec.structs.replace(base, rollups={command.seqno: command.key})
            return Transition(diff, True)
        case Collect():
            return _collect(state, command, base)
        case Sweep():
            if not base.expired and not (state.ending and not _holders(state, base)):
                return Transition(None)
            return Transition(_let_go(state, base))
        case Finalize():
            held = [h for h in _holders(state, base) if h.id not in command.besides]
            if held and not state.finalized:
                raise ShardHeld(state.shard_id, held)
            return _finalize(state, base)
        case Retire():
            return _retire(state, command, base)


def _base(
    state: ShardState,
    command: Command,
    now_ms: int,
    sightings: Mapping[str, Sighting],
) -> StateDiff:
    """Return what every change records: handles whose leases have run out become expired ones; the oldest expired ones
    are forgotten.
    """
    seqno = state.seqno + 1
    # A command proves that its own handle is alive, however long this process has not seen it renewed.
    own = (getattr(command, "reader_id", None), getattr(command, "writer_id", None))
    out = {i: seen for i, seen in lapsed(state, sightings).items() if i not in own}
    expired: dict[str, Expired | None] = {}
    for i, seen in out.items():
        handle = state.readers.get(i) or state.writers[i]
        expired[i] = Expired(seqno, seen.unseen_ms, handle.purpose)
    surplus = len(state.expired) + len(expired) - EXPIRED_KEPT
    if expired and surplus > 0:
        oldest = sorted(state.expired, key=lambda i: (state.expired[i].seqno, i))
        expired.update(dict.fromkeys(oldest[:surplus]))
    # The wall time increases with every change, even if the clock does not, so that no two renewals have the same
    # heartbeat.
    return StateDiff(
        seqno=seqno,
        walltime_ms=max(state.walltime_ms + 1, now_ms),
        readers={i: None for i in state.readers if i in out},
        writers={i: None for i in state.writers if i in out},
        expired=expired,
    )


def _expired(state: ShardState, handle_id: str, what: str) -> ExpiredHandle:
    """Return the error for a handle that is not in the state and will never be again."""
    found = state.expired.get(handle_id)
    said = (
        "has expired"
        if found is None
        else f"has expired: whoever made change {found.seqno} had seen no renewal of it for {found.unseen_ms / 1000:g} s"
    )
    return ExpiredHandle(
        f"shard {state.shard_id}: the {what} {handle_id} {said}",
        hint=(
            "Open a new writer; what this one appended stays."
            if what == "writer"
            else "Open a new reader; its since is the shard's."
        ),
        unseen_ms=None if found is None else found.unseen_ms,
    )


def expired_reader(state: ShardState, reader_id: str) -> ExpiredHandle:
    """Return the error for a reader that is no longer in the state."""
    return _expired(state, reader_id, "reader")


def _holders(state: ShardState, diff: StateDiff) -> list[Holder]:
    """Return who still holds since once ``diff``, which registers nobody, is applied; sorted by id within critical and
    leased readers.
    """
    found = [
        Holder(CRITICAL, i, hold.since, hold.purpose, hold.token)
        for i, hold in sorted(state.critical.items())
        if diff.critical.get(i, hold) is not None
    ]
    for i, reader in sorted(state.readers.items()):
        left = diff.readers.get(i, reader)
        # A reader that has given up all reading holds nothing.
        if left is not None and left.since is not None:
            found.append(Holder("reader", i, left.since, left.purpose))
    return found


def holders(state: ShardState) -> list[Holder]:
    """Return who holds since: critical readers, then leased ones, each sorted by id."""
    return _holders(state, StateDiff(seqno=state.seqno, walltime_ms=state.walltime_ms))


def _let_go(state: ShardState, diff: StateDiff) -> StateDiff:
    """Return ``diff``, in which somebody may give up a hold; if an ending shard is then held by nobody, the diff ends
    it.
    """
    if not state.ending or state.finalized or _holders(state, diff):
        return diff
    ended = _finalize(state, diff).diff
    assert ended is not None
    return ended


def _retire(state: ShardState, command: Retire, base: StateDiff) -> Transition:
    dropped = dict.fromkeys(i for i in command.besides if i in state.readers)
    base = msgspec.structs.replace(base, readers={**base.readers, **dropped})
    held = () if state.finalized else tuple(_holders(state, base))
    if not held:
        return Transition(_finalize(state, base).diff, ())
    if state.ending and not base.readers:
        return Transition(None, held)
    # It ends with its last hold, by whichever command gives that up (`_let_go`): nobody has to wait for it.
    return Transition(msgspec.structs.replace(base, ending=True), held)


def _renewed(state: ShardState, diff: StateDiff, ids: Collection[str]) -> StateDiff:
    """Return ``diff`` with the leases of those of ``ids`` renewed that are still in the state."""
    at = diff.walltime_ms
    readers = {
        i: msgspec.structs.replace(state.readers[i], heartbeat_ms=at)
        for i in ids
        if i in state.readers and i not in diff.readers
    }
    writers = {
        i: msgspec.structs.replace(state.writers[i], heartbeat_ms=at)
        for i in ids
        if i in state.writers and i not in diff.writers
    }
    return msgspec.structs.replace(
        diff, readers={**diff.readers, **readers}, writers={**diff.writers, **writers}
    )


def _renew_writer(state: ShardState, command: RenewWriter, base: StateDiff) -> Transition:
    if command.writer_id not in state.writers:
        _check_live(state)
        if command.writer_id in state.expired:
            raise _expired(state, command.writer_id, "writer")
        return Transition(None)
    return Transition(_renewed(state, base, (command.writer_id, *command.also)))


def _with_reader(base: StateDiff, reader_id: str, reader: LeasedReader | None) -> StateDiff:
    return msgspec.structs.replace(base, readers={**base.readers, reader_id: reader})


def _with_writer(base: StateDiff, writer_id: str, writer: Writer | None) -> StateDiff:
    return msgspec.structs.replace(base, writers={**base.writers, writer_id: writer})


def _check_live(state: ShardState) -> None:
    if state.finalized:
        raise ShardFinalized(
            f"shard {state.shard_id} was finalized: nothing can be read or written"
        )


def _check_not_ending(state: ShardState) -> None:
    if state.ending:
        raise ShardFinalized(
            f"shard {state.shard_id} is to end: nobody new can read it",
            detail=f"It waits for {_told(holders(state)) or 'its upkeep'}.",
        )


def _told(held: list[Holder]) -> str:
    return ", ".join(map(str, held))


def _compare_and_append(
    state: ShardState, command: CompareAndAppend, base: StateDiff
) -> Transition:
    writer = state.writers.get(command.writer_id)
    # A retry of an append that was committed after all.
    # Asked before the uppers are compared, as this very append has moved the upper.
    if writer is not None and writer.token == command.token:
        return Transition(None)
    known = command.registered or command.writer_id in state.expired
    if writer is None and known and not state.finalized:
        raise _expired(state, command.writer_id, "writer")
    if command.lower != state.upper:
        raise UpperMismatch(state.shard_id, command.lower, state.upper)
    if not less_equal(command.lower, command.upper):
        raise InvalidBounds(
            f"shard {state.shard_id}: the upper cannot go back from {show(command.lower)} "
            f"to {show(command.upper)}"
        )
    if command.parts and command.lower == command.upper:
        raise InvalidBounds(
            f"shard {state.shard_id}: updates need an upper beyond {show(command.lower)}"
        )
    keys = {part.key for part in command.parts if isinstance(part, BlobPart)}
    # With one object in two batches, the merge of one would have it deleted while the other still names it.
    if keys and keys & known_keys(state):
        raise UsageError(f"shard {state.shard_id}: the batch was appended before")
    inline = sum(part.size for part in command.parts if isinstance(part, InlinePart))
    if inline and state.inline_size + inline > command.inline_total_bytes:
        raise InlineOverflow
    if command.upper is None and state.since is None:
        return _finalize(state, base)
    diff = msgspec.structs.replace(base, upper=command.upper)
    if state.since is None:
        # Since is empty, so nobody will ever read the updates.
        diff = _without_batches(state, diff, besides=command.parts)
    elif command.parts:
        assert command.lower is not None
        batch = TraceBatch(state.next_batch, command.lower, command.upper, 0, command.parts)
        diff = msgspec.structs.replace(diff, added=(batch,))
    # An append renews the lease, and leaves the token by which a retry of it is recognised.
    renewed = Writer(
        base.walltime_ms, command.lease_ms, command.token, command.upper, command.purpose
    )
    return Transition(_with_writer(diff, command.writer_id, renewed))


def _without_batches(
    state: ShardState, diff: StateDiff, *, besides: tuple[Part, ...] = ()
) -> StateDiff:
    """Return ``diff`` with all batches removed; their objects, and those of the parts ``besides``, become garbage."""
    keys = [key for batch in state.trace for key in batch.blob_keys]
    keys += [part.key for part in besides if isinstance(part, BlobPart)]
    removed = tuple(batch.id for batch in state.trace)
    return msgspec.structs.replace(diff, removed=removed, garbage=tuple(keys))


def _check_frontier(state: ShardState, frontier: Frontier) -> None:
    if not (frontier is None or is_timestamp(frontier)):
        raise InvalidBounds(f"shard {state.shard_id}: not a frontier: {frontier!r}")


def _register_reader(state: ShardState, command: RegisterReader, base: StateDiff) -> Transition:
    _check_live(state)
    known = state.readers.get(command.reader_id)
    if known is not None:
        return Transition(None, known)
    if command.reader_id in state.expired:
        raise expired_reader(state, command.reader_id)
    _check_not_ending(state)
    reader = LeasedReader(
        state.since, base.seqno, base.walltime_ms, command.lease_ms, command.purpose
    )
    return Transition(_with_reader(base, command.reader_id, reader), reader)


def _downgrade_since(state: ShardState, command: DowngradeSince, base: StateDiff) -> Transition:
    _check_frontier(state, command.since)
    reader = state.readers.get(command.reader_id)
    if reader is None:
        _check_live(state)
        raise expired_reader(state, command.reader_id)
    # Joined with the present values: a command that arrives late, or again, never moves the reader back.
    renewed = LeasedReader(
        join(reader.since, command.since),
        max(reader.seqno_hold, command.seqno_hold),
        base.walltime_ms,
        reader.lease_ms,
        reader.purpose,
    )
    diff = _renewed(state, _with_reader(base, command.reader_id, renewed), command.also)
    holds = [
        r.since
        for i, r in state.readers.items()
        if i != command.reader_id and diff.readers.get(i, r) is not None
    ]
    holds += [hold.since for hold in state.critical.values()]
    return _advance_since(state, diff, [*holds, renewed.since], ended=renewed.since is None)


def _advance_since(
    state: ShardState, diff: StateDiff, holds: list[Frontier], *, ended: bool = False
) -> Transition:
    if ended and state.ending and not _holders(state, diff):
        return _finalize(state, diff)
    # The empty frontier holds nothing: if no other hold is left, since becomes empty.
    held: Frontier = None
    for hold in holds:
        if hold is not None:
            held = hold if held is None else min(held, hold)
    since = join(state.since, held)
    if since is None and state.upper is None:
        return _finalize(state, diff)
    if since == state.since:
        return Transition(diff)
    if since is None:
        diff = _without_batches(state, diff)
    return Transition(msgspec.structs.replace(diff, since=since))


def _register_critical(state: ShardState, command: RegisterCritical, base: StateDiff) -> Transition:
    _check_live(state)
    known = state.critical.get(command.reader_id)
    expected = command.expected_token
    if expected is not None and (known is None or known.token not in (expected, command.token)):
        owner = "nobody" if known is None else f"the owner of token {known.token!r}"
        raise Fenced(
            f"shard {state.shard_id}: the hold {command.reader_id} belongs to {owner}, not to that of {expected!r}"
        )
    if known is None:
        _check_not_ending(state)
    since = state.since if known is None else known.since
    hold = CriticalHold(since, command.token, command.purpose)
    if known == hold:
        return Transition(None, known)
    return Transition(msgspec.structs.replace(base, critical={command.reader_id: hold}), hold)


def _check_token(state: ShardState, reader_id: str, hold: CriticalHold, token: str) -> None:
    if hold.token != token:
        raise Fenced(
            f"shard {state.shard_id}: the hold {reader_id} was taken over by another process",
            detail=f"Its token is {hold.token!r} now, ours was {token!r}.",
        )


def _downgrade_critical(
    state: ShardState, command: DowngradeCritical, base: StateDiff
) -> Transition:
    _check_frontier(state, command.since)
    hold = state.critical.get(command.reader_id)
    if hold is None:
        _check_live(state)
        raise ExpiredHandle(f"shard {state.shard_id}: the hold {command.reader_id} was released")
    _check_token(state, command.reader_id, hold, command.token)
    moved = CriticalHold(join(hold.since, command.since), hold.token, hold.purpose)
    diff = msgspec.structs.replace(base, critical={command.reader_id: moved})
    holds = [r.since for i, r in state.readers.items() if i not in base.readers]
    holds += [h.since for i, h in state.critical.items() if i != command.reader_id]
    return _advance_since(state, diff, [*holds, moved.since], ended=moved.since is None)


def _apply_merge(state: ShardState, command: ApplyMerge, base: StateDiff) -> Transition:
    made = {part.key for part in command.parts if isinstance(part, BlobPart)}
    # A retry of a merge that was committed after all.
    if made and made & known_keys(state):
        return Transition(None, True)
    inputs = [batch for batch in state.trace if batch.id in set(command.inputs)]
    if len(inputs) != len(command.inputs):
        # A merge whose output is inline leaves no object key to recognise it by; either way its inputs are gone.
        return Transition(None, False)
    garbage = tuple(key for batch in inputs for key in batch.blob_keys)
    added: tuple[TraceBatch, ...] = ()
    if command.parts:
        merged = TraceBatch(
            state.next_batch,
            command.lower,
            command.upper,
            command.since,
            command.parts,
            consolidated=True,
            diffs=command.diffs,
        )
        added = (merged,)
    diff = msgspec.structs.replace(base, added=added, removed=command.inputs, garbage=garbage)
    return Transition(diff, True)


def known_keys(state: ShardState) -> set[str]:
    """Return the keys of all batch objects that the state names, live or garbage."""
    keys = {key for batch in state.trace for key in batch.blob_keys}
    for dead in state.garbage.values():
        keys.update(dead)
    return keys


def _collect(state: ShardState, command: Collect, base: StateDiff) -> Transition:
    garbage = tuple(seqno for seqno in command.garbage if seqno in state.garbage)
    # Entries of the log name the newest rollup as the state to start from.
    newest = state.latest_rollup
    rollups: dict[int, str | None] = {
        seqno: None
        for seqno in command.rollups
        if seqno in state.rollups and (state.finalized or seqno != newest)
    }
    if not garbage and not rollups:
        return Transition(None)
    return Transition(msgspec.structs.replace(base, collected=garbage, rollups=rollups))


def _finalize(state: ShardState, base: StateDiff) -> Transition:
    if state.finalized:
        return Transition(None)
    diff = msgspec.structs.replace(
        base,
        since=None,
        upper=None,
        readers=dict.fromkeys(state.readers),
        writers=dict.fromkeys(state.writers),
        critical=dict.fromkeys(state.critical),
        expired=dict.fromkeys(state.expired),
        ending=False if state.ending else UNSET,
    )
    return Transition(_without_batches(state, diff))
