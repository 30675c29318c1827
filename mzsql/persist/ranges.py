"""Reading a Parquet object by byte ranges: where row groups lie, and a file made of ranged reads.

Promise: adjacent ranges are read with one request, and nothing is read that is not part of a wanted row group's
wanted columns, except gaps too small to be worth another request and the rest of the blocks that a range begins and
ends in (`mzsql.persist.blocks`).
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Sequence

import pyarrow.parquet as pq

from mzsql.persist.blocks import Blocks

#: How much of an object's end is read for its footer; if the footer is longer, a second read gets the rest.
_FOOTER_BYTES = 8 * 1024
#: Gaps of at most this many bytes between two ranges are read with them, because a request costs more.
_GAP_BYTES = 1024


def extents(
    metadata: pq.FileMetaData, groups: Sequence[int], names: Sequence[str]
) -> list[tuple[int, int]]:
    """Return where the columns ``names`` of row groups lie: offsets and lengths in file order, adjacent ones joined."""
    wanted = [
        place
        for place in range(metadata.num_columns)
        if _top_level(metadata.schema.column(place).path, names)
    ]
    found: list[tuple[int, int]] = []
    for group in groups:
        row_group = metadata.row_group(group)
        for place in wanted:
            chunk = row_group.column(place)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
                start = min(start, chunk.dictionary_page_offset)
            length = chunk.total_compressed_size
            if found and 0 <= start - sum(found[-1]) <= _GAP_BYTES:
                found[-1] = (found[-1][0], start + length - found[-1][0])
            else:
                found.append((start, length))
    return found


def _top_level(path: str, names: Sequence[str]) -> bool:
    return any(path == name or path.startswith(name + ".") for name in names)


class RangeFile:
    """An object as a read-only file that counts the bytes read.

    Args:
        size: the object's size in bytes.
        fetch: reads as many bytes as its second argument says from the offset in the first.

    Once its ``blocks`` are set, every byte that they cover is verified; a mismatch raises `OSError`.
    """

    def __init__(self, size: int, fetch: Callable[[int, int], bytes]) -> None:
        self._size = size
        self._fetch = fetch
        self._position = 0
        self._fetched: list[tuple[int, memoryview]] = []
        self.blocks: Blocks | None = None
        self.bytes_read = 0
        self.closed = False

    def prefetch(self, extents: Sequence[tuple[int, int]]) -> None:
        """Read the ranges (offset, length) now, for later reads inside of them: one request per range, however many
        reads follow.
        """
        whole: list[tuple[int, int]] = []
        for extent in extents:
            offset, length = self._around(*extent)
            if whole and offset <= sum(whole[-1]):
                length = max(sum(whole[-1]), offset + length) - whole[-1][0]
                offset, _ = whole.pop()
            whole.append((offset, length))
        self._fetched = [
            (offset, memoryview(self._checked(offset, length))) for offset, length in whole
        ]

    def footer(self, length: int = 0) -> bytes:
        """Return the end of the object from its Parquet metadata on; ``length`` is its length if known."""
        size = self._size
        first = min(size, length or _FOOTER_BYTES)
        tail = self._read_at(size - first, first)
        length = int.from_bytes(tail[-8:-4], "little") + 8
        if len(tail) < length <= size:
            tail = self._read_at(size - length, length - len(tail)) + tail
        return tail

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, all by default."""
        left = self._size - self._position
        length = left if size is None or size < 0 else min(size, left)
        if length <= 0:
            return b""
        data = self._from_fetched(self._position, length)
        if data is None:
            offset, stretch = self._around(self._position, length)
            start = self._position - offset
            data = self._checked(offset, stretch)[start : start + length]
        self._position += len(data)
        return data

    def _around(self, offset: int, length: int) -> tuple[int, int]:
        blocks = self.blocks
        if blocks is None or offset + length > blocks.covered:
            return offset, length
        return blocks.around(offset, length)

    def _checked(self, offset: int, length: int) -> bytes:
        data = self._read_at(offset, length)
        blocks = self.blocks
        covered = blocks is not None and offset + length <= blocks.covered
        if blocks is not None and covered and not blocks.intact(offset, data):
            raise OSError(f"bytes {offset} to {offset + length} do not match their checksum")
        return data

    def _from_fetched(self, offset: int, length: int) -> bytes | None:
        at = bisect.bisect_right(self._fetched, offset, key=lambda one: one[0]) - 1
        if at < 0:
            return None
        start, data = self._fetched[at]
        if offset + length > start + len(data):
            return None
        return data[offset - start : offset - start + length].tobytes()

    def _read_at(self, offset: int, length: int) -> bytes:
        data = self._fetch(offset, length)
        self.bytes_read += len(data)
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move relative to the start, the position or the end; return the new position."""
        base = (0, self._position, self._size)[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def size(self) -> int:
        """Return the object's size in bytes."""
        return self._size

    def readable(self) -> bool:
        """Return true."""
        return True

    def seekable(self) -> bool:
        """Return true."""
        return True

    def writable(self) -> bool:
        """Return false."""
        return False

    def flush(self) -> None:
        """Do nothing: nothing is buffered."""

    def close(self) -> None:
        """Mark the file as closed; no resource is held."""
        self.closed = True
