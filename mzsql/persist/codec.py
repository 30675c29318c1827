"""Encoding of log entries and rollups, each in a frame (`mzsql.persist.frames`).

Promise: an entry or rollup says which shard and seqno it is of, and is refused in any other place. What a newer
version wrote is refused whether it has another frame format or only other structs.
"""

from __future__ import annotations

import msgspec

from mzsql.location.errors import UsageError
from mzsql.persist.errors import CorruptPart
from mzsql.persist.frames import decode, encoder, frame
from mzsql.persist.state import ShardState, StateDiff
from mzsql.persist.versions import check_version
from mzsql.repr.version import VERSION


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a shard's log.

    ``rollup_seqno`` and ``rollup_key`` name the newest rollup before it; an empty key means that the entry at
    ``rollup_seqno`` itself carries a whole ``state``, as the first entry and those of a tombstone do. ``version`` is
    that of the program that wrote it.
    """

    rollup_seqno: int = 0
    rollup_key: str = ""
    diff: StateDiff | None = None
    state: ShardState | None = None
    version: str = ""


_entries = msgspec.msgpack.Decoder(Entry)
_states = msgspec.msgpack.Decoder(ShardState)


def encode_entry(entry: Entry) -> bytes:
    """Encode the entry in a frame.

    Raises:
        UsageError: it contains a value of a type that could not be decoded, from some argument.
    """
    try:
        payload = encoder.encode(entry)
        # Decode it before committing it, which takes microseconds: an undecodable entry would lock every process out
        # of the shard.
        _entries.decode(payload)
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError, OverflowError) as failure:
        raise UsageError(f"what is to be committed could not be read back: {failure}") from failure
    return frame(payload)


def decode_entry(data: bytes, shard_id: str, seqno: int, *, version: str = VERSION) -> Entry:
    """Decode the entry found at ``seqno`` of a shard's log, for a program of ``version``.

    Raises:
        NewerVersion: a newer version wrote it.
        CorruptPart: it is not a whole frame, or is the entry of another place or shard.
    """
    what = f"shard {shard_id}: the log entry {seqno}"
    entry = decode(_entries, data, what, version)
    check_version(version, entry.version, what)
    if entry.state is not None:
        _check_place(entry.state, shard_id, seqno, what, version)
    elif entry.diff is None:
        raise CorruptPart(f"{what} is empty")
    elif entry.diff.seqno != seqno:
        raise CorruptPart(f"{what} says it is {entry.diff.seqno}: it is of another place")
    return entry


def _check_place(state: ShardState, shard_id: str, seqno: int, what: str, version: str) -> None:
    check_version(version, state.applier_version, what)
    if (state.shard_id, state.seqno) != (shard_id, seqno):
        raise CorruptPart(
            f"{what} holds state {state.seqno} of shard {state.shard_id}: it is of another place"
        )


def encode_state(state: ShardState) -> bytes:
    """Encode the rollup in a frame."""
    return frame(encoder.encode(state))


def decode_state(
    data: bytes, shard_id: str, seqno: int, key: str, *, version: str = VERSION
) -> ShardState:
    """Decode the state at ``seqno`` from the rollup ``key``.

    Raises:
        NewerVersion, CorruptPart: as `decode_entry`.
    """
    what = f"shard {shard_id}: the rollup {key}"
    state = decode(_states, data, what, version)
    _check_place(state, shard_id, seqno, what, version)
    return state
