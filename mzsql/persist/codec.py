"""Entries of the log and rollups as bytes: framed, versioned, checksummed.

Promise: a frame is ``magic, format version, CRC-32, msgpack``. What an older version wrote is read; what a newer one wrote is
refused before anything is decoded, so an older program does no harm to a newer one's shard.
"""

from __future__ import annotations

import struct
import zlib
from typing import TypeVar

import msgspec

from mzsql.persist.errors import CorruptPart, NewerVersion
from mzsql.persist.state import ShardState, StateDiff

FORMAT_VERSION = 1
_MAGIC = b"mzps"
_HEADER = struct.Struct(">4sHI")

T = TypeVar("T")


class Entry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of a shard's log.

    ``rollup_seqno`` and ``rollup_key`` name the newest rollup before it; an empty key means that the entry at ``rollup_seqno`` itself
    carries a whole ``state``, as the first entry and those of a tombstone do.
    """

    rollup_seqno: int = 0
    rollup_key: str = ""
    diff: StateDiff | None = None
    state: ShardState | None = None


_encoder = msgspec.msgpack.Encoder()
_entries = msgspec.msgpack.Decoder(Entry)
_states = msgspec.msgpack.Decoder(ShardState)


def checksum(data: bytes | memoryview) -> int:
    """CRC-32 of ``data``."""
    return zlib.crc32(data)


def encode_entry(entry: Entry) -> bytes:
    """The entry's frame."""
    return _frame(_encoder.encode(entry))


def decode_entry(data: bytes, shard_id: str) -> Entry:
    """The entry in a frame.

    Raises:
        NewerVersion: a newer version wrote it.
        CorruptPart: it is not a whole frame.
    """
    return _decode(_entries, data, f"shard {shard_id}: a log entry")


def encode_state(state: ShardState) -> bytes:
    """The rollup's frame."""
    return _frame(_encoder.encode(state))


def decode_state(data: bytes, shard_id: str, key: str) -> ShardState:
    """The state in a rollup's frame; raises as `decode_entry`."""
    return _decode(_states, data, f"shard {shard_id}: the rollup {key}")


def _frame(payload: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, FORMAT_VERSION, checksum(payload)) + payload


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes, what: str) -> T:
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
    payload = data[_HEADER.size :]
    if checksum(payload) != crc:
        raise CorruptPart(f"{what} does not match its checksum")
    try:
        return decoder.decode(payload)
    except msgspec.DecodeError as failure:
        raise CorruptPart(f"{what} cannot be decoded: {failure}") from failure
