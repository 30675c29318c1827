"""Entries of the log and rollups as bytes: framed, versioned, checksummed.

Promise: a frame is ``magic, format version, CRC-32, msgpack``. What an older version wrote is read; what a newer one wrote, whether in
another format or with other structs, is refused (`mzsql.persist.versions`), so an older program does no harm to a newer one's shard.
Bytes that are anything else raise `CorruptPart`, and nothing else.
"""

from __future__ import annotations

import struct
import zlib
from typing import TypeVar

import msgspec

from mzsql.location.errors import UsageError
from mzsql.persist.errors import CorruptPart, NewerVersion
from mzsql.persist.state import ShardState, StateDiff
from mzsql.persist.versions import check_version
from mzsql.repr.version import VERSION

FORMAT_VERSION = 1
_MAGIC = b"mzps"
_HEADER = struct.Struct(">4sHI")

T = TypeVar("T")


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a shard's log.

    ``rollup_seqno`` and ``rollup_key`` name the newest rollup before it; an empty key means that the entry at ``rollup_seqno`` itself
    carries a whole ``state``, as the first entry and those of a tombstone do. ``version`` is that of the program that wrote it.
    """

    rollup_seqno: int = 0
    rollup_key: str = ""
    diff: StateDiff | None = None
    state: ShardState | None = None
    version: str = ""


class _WrittenBy(msgspec.Struct, frozen=True):
    """What says who wrote an entry or a rollup whose rest a program of ours may not understand."""

    version: str = ""
    applier_version: str = ""


_written_by = msgspec.msgpack.Decoder(_WrittenBy)
_encoder = msgspec.msgpack.Encoder()
_entries = msgspec.msgpack.Decoder(Entry)
_states = msgspec.msgpack.Decoder(ShardState)


def checksum(data: bytes | memoryview) -> int:
    """CRC-32 of ``data``."""
    return zlib.crc32(data)


def encode_entry(entry: Entry) -> bytes:
    """The entry's frame.

    Raises:
        UsageError: it holds something of a type that nobody could read back, which some argument brought in.
    """
    try:
        payload = _encoder.encode(entry)
        # Once committed, it would keep every process from the shard; reading it takes microseconds.
        _entries.decode(payload)
    except (msgspec.ValidationError, TypeError, UnicodeEncodeError, OverflowError) as failure:
        raise UsageError(f"what is to be committed could not be read back: {failure}") from failure
    return _frame(payload)


def decode_entry(data: bytes, shard_id: str, seqno: int, *, version: str = VERSION) -> Entry:
    """The entry in a frame that was found at ``seqno`` of a shard's log, for a program of ``version``.

    Raises:
        NewerVersion: a newer version wrote it.
        CorruptPart: it is not a whole frame, or the frame of another entry or shard.
    """
    what = f"shard {shard_id}: the log entry {seqno}"
    entry = _decode(_entries, data, what, version)
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
    """The rollup's frame."""
    return _frame(_encoder.encode(state))


def decode_state(
    data: bytes, shard_id: str, seqno: int, key: str, *, version: str = VERSION
) -> ShardState:
    """The state at ``seqno`` in the frame of the rollup ``key``; raises as `decode_entry`."""
    what = f"shard {shard_id}: the rollup {key}"
    state = _decode(_states, data, what, version)
    _check_place(state, shard_id, seqno, what, version)
    return state


def is_framed(data: bytes) -> bool:
    """Whether ``data`` begins as a frame does."""
    return data.startswith(_MAGIC)


def encode_framed(value: msgspec.Struct) -> bytes:
    """The frame of what travels between processes without being kept."""
    return _frame(_encoder.encode(value))


def decode_framed(decoder: msgspec.msgpack.Decoder[T], data: bytes, what: str) -> T:
    """The reverse of `encode_framed`; raises as `decode_entry`."""
    return _decode(decoder, data, what, VERSION)


def _frame(payload: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, FORMAT_VERSION, checksum(payload)) + payload


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes, what: str, ours: str) -> T:
    if len(data) < _HEADER.size:
        raise CorruptPart(f"{what} is too short to be one")
    magic, version, crc = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise CorruptPart(f"{what} is not one of mzsql's")
    if version > FORMAT_VERSION:
        raise NewerVersion(
            f"{what} has format {version}, this version of mzsql reads up to {FORMAT_VERSION}",
            hint="Upgrade mzsql to the version that writes this environment.",
        )
    if version < 1:
        raise CorruptPart(f"{what} has format {version}, which never was")
    payload = data[_HEADER.size :]
    if checksum(payload) != crc:
        raise CorruptPart(f"{what} does not match its checksum")
    try:
        return decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, UsageError) as failure:
        _check_writer(payload, what, ours)
        raise CorruptPart(f"{what} cannot be decoded: {failure}") from failure


def _check_writer(payload: bytes, what: str, ours: str) -> None:
    """Raise `NewerVersion` when what cannot be decoded says that a newer version wrote it."""
    try:
        found = _written_by.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    check_version(ours, found.version or found.applier_version, what)
