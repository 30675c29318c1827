"""Checksums of the blocks of a Parquet object, kept in its own footer, and of the footer, kept in the part's metadata.

Promise: whichever byte range of an object is read, all of it is covered by a CRC-32 that was itself verified: a
Parquet page's CRC does not cover the page's header, and a footer has none. Blocks are small enough that reading
whole ones costs little more than the range requested, and so few that the footer does not grow much. Objects of
other writers (Spark) have no such blocks: their footer is verified by the part's metadata, and each page by its own
CRC.
"""

from __future__ import annotations

import base64
import binascii
import io
import struct
from collections.abc import Mapping, Sequence

import msgspec
import pyarrow.parquet as pq

from mzsql.persist.frames import checksum

_NAME = b"mzsql.blocks"
_LEAST_BYTES = 1024
_MOST_BLOCKS = 8192
_TAIL = 8
"""A Parquet object ends with the length of its footer and a magic number, 4 bytes each."""


class Blocks(msgspec.Struct, frozen=True):
    """The checksums of an object's first ``covered`` bytes in blocks of ``size`` bytes; the last may be shorter."""

    size: int
    covered: int
    checksums: tuple[int, ...]

    def around(self, offset: int, length: int) -> tuple[int, int]:
        """Return the range (offset, length) of whole blocks around one that lies within the covered bytes."""
        start = offset // self.size * self.size
        end = min(self.covered, -(-(offset + length) // self.size) * self.size)
        return start, end - start

    def intact(self, offset: int, data: bytes) -> bool:
        """Whether whole blocks read from ``offset`` on match their checksums."""
        first = offset // self.size
        view = memoryview(data)
        return all(
            checksum(view[start : start + self.size]) == self.checksums[first + place]
            for place, start in enumerate(range(0, len(view), self.size))
        )


class Sink(io.BytesIO):
    """The in-memory file that a `pyarrow.parquet.ParquetWriter` writes to, readable before and after the writer closes
    it.

    Call `seal` after the last row group and before the writer is closed, then take `data`.
    """

    def seal(self, writer: pq.ParquetWriter) -> None:
        """Have the writer put the checksums of all bytes so far into its footer."""
        with self.getbuffer() as view:
            writer.add_key_value_metadata({_NAME: _encoded(view)})

    def data(self) -> bytes:
        """Return all bytes, and close the sink."""
        taken = self.getvalue()
        super().close()
        return taken

    def close(self) -> None:
        """Keep the bytes: the writer closes its file when it is done."""


def _encoded(data: memoryview) -> bytes:
    size = _LEAST_BYTES
    while size * _MOST_BLOCKS < len(data):
        size *= 2
    checksums = [checksum(data[start : start + size]) for start in range(0, len(data), size)]
    packed = struct.pack(f">QQ{len(checksums)}I", size, len(data), *checksums)
    return base64.b64encode(packed)  # readers of the footer (Spark) take metadata values as text


def blocks_of(metadata: Mapping[bytes, bytes] | None) -> Blocks | None:
    """Return the blocks listed in a footer's key-value metadata; `None` if there are none."""
    text = None if metadata is None else metadata.get(_NAME)
    if text is None:
        return None
    try:
        packed = base64.b64decode(text, validate=True)
        numbers: Sequence[int] = struct.unpack(f">QQ{(len(packed) - 16) // 4}I", packed)
    except (binascii.Error, struct.error):
        return None
    return Blocks(numbers[0], numbers[1], tuple(numbers[2:]))


def footer_of(data: bytes) -> tuple[int, int]:
    """Return the length of a Parquet object's footer, up to the end of the object, and its CRC-32."""
    length = int.from_bytes(data[-_TAIL:-4], "little") + _TAIL
    return length, checksum(memoryview(data)[-length:])
