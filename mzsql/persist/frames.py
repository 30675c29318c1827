"""Frames: versioned and checksummed bytes, for everything durable and everything sent between processes.

Promise: a frame is ``magic, format version, CRC-32, msgpack``. What an older version wrote is read; what a newer one
wrote, whether with another format or with other structs, is refused (`mzsql.persist.versions`), so an older program
does not damage a newer one's shard. Any other bytes raise `CorruptPart`.
"""

from __future__ import annotations

import struct
import zlib
from typing import TypeVar

import msgspec

from mzsql.location.errors import UsageError
from mzsql.persist.errors import CorruptPart, NewerVersion
from mzsql.persist.versions import check_version
from mzsql.repr.version import VERSION

FORMAT_VERSION = 1
_MAGIC = b"mzps"
_HEADER = struct.Struct(">4sHI")

T = TypeVar("T")


class _WrittenBy(msgspec.Struct, frozen=True):
    """The fields that say which version wrote an entry or a rollup, decodable even if the rest is not."""

    version: str = ""
    applier_version: str = ""


_written_by = msgspec.msgpack.Decoder(_WrittenBy)
encoder = msgspec.msgpack.Encoder()
"""Encodes the payload of frames."""


def checksum(data: bytes | memoryview) -> int:
    """Return the CRC-32 of ``data``."""
    return zlib.crc32(data)


def is_framed(data: bytes) -> bool:
    """Whether ``data`` begins as a frame does."""
    return data.startswith(_MAGIC)


def encode_framed(value: msgspec.Struct) -> bytes:
    """Encode a value, sent between processes without being stored, in a frame."""
    return frame(encoder.encode(value))


def decode_framed(decoder: msgspec.msgpack.Decoder[T], data: bytes, what: str) -> T:
    """Decode what `encode_framed` encoded.

    Raises:
        NewerVersion, CorruptPart: as `decode`.
    """
    return decode(decoder, data, what, VERSION)


def frame(payload: bytes) -> bytes:
    """Put a payload into a frame."""
    return _HEADER.pack(_MAGIC, FORMAT_VERSION, checksum(payload)) + payload


def decode(decoder: msgspec.msgpack.Decoder[T], data: bytes, what: str, ours: str) -> T:
    """Decode the contents of a frame, for a program of version ``ours``.

    Args:
        decoder: decodes the payload.
        data: the frame.
        what: what it should be, for messages.
        ours: a version.

    Raises:
        NewerVersion: a newer version wrote it.
        CorruptPart: it is not a whole frame, or its payload is something else.
    """
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
    """Raise `NewerVersion` if a payload that cannot be decoded says that a newer version wrote it."""
    try:
        found = _written_by.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return
    check_version(ours, found.version or found.applier_version, what)
