r"""The input of COPY FROM, as bytes: text format and CSV rewritten into the dialect that pyarrow's reader takes.

Promise: the output means what the input means to PostgreSQL. Text format comes out with tabs as delimiters, whatever
the delimiter was, and keeps its escapes; in CSV a quote inside quotes comes out doubled, whatever ESCAPE was. The line
``\.`` ends text format, and CSV where it is the last line. Memory is bounded by a chunk, or by a row where that is
longer. The trade-off: chunks without a backslash, and CSV whose ESCAPE is its QUOTE, pass almost unchanged; other
values are rewritten one by one.
"""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Iterator
from typing import IO

from mzsql.repr.errors import DataError

#: Bytes rewritten at a time.
_CHUNK = 1 << 20
#: Bytes that never occur in UTF-8. They stand for a double backslash, and for an escaped delimiter, while a chunk is
#: rewritten.
_PAIR, _PLAIN = b"\xff", b"\xfe"
_END = re.compile(rb"(?m)^\\\.\r?$")
_LAST = re.compile(rb"(?:\A|\n)(\\\.\r?\n?)\Z")
_BLANK = re.compile(rb"(?m)^\r?\n")
_CODE = re.compile(rb"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3}))")
#: Characters that an octal or hexadecimal escape may name and that must stay escaped, or the format would interpret
#: them.
_NAMED = {b"\b": b"\\b", b"\n": b"\\n", b"\r": b"\\r", b"\t": b"\\t", b"\\": _PAIR}

EMPTY_LINE = "\\\x01"
"""Stands for an empty line where rows have several columns: the reader would take it for a row of NULLs instead of a
misshapen row.
"""


class Stream(io.RawIOBase):
    """A raw stream over an iterator of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        """Always True."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        """Fill ``buffer`` from the current piece; the number of bytes, 0 at the end."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        taken = min(len(buffer), len(self._left))
        buffer[:taken] = self._left[:taken]
        self._left = self._left[taken:]
        return taken


def text_bytes(source: IO[bytes], delimiter: str, columns: int) -> Iterator[bytes]:
    """COPY's text format with tabs as delimiters."""
    mark = delimiter.encode()
    continued = False
    while lines := source.readlines(_CHUNK):
        data = b"".join(lines)
        over = False
        if b"\\" in data:
            data, over, continues = _text_chunk(data, mark, continued=continued)
        else:
            continues = False
            if mark != b"\t":
                data = data.replace(b"\t", b"\\t").replace(mark, b"\t")
        if columns > 1 and not continued:
            data = _BLANK.sub(EMPTY_LINE.encode() + b"\n", data)
        yield data
        if over:
            return
        continued = continues


def _text_chunk(data: bytes, mark: bytes, *, continued: bool) -> tuple[bytes, bool, bool]:
    """Rewrite a chunk of whole lines; whether the end marker is in it, and whether its last line continues in the next
    chunk.
    """
    if _PAIR in data or _PLAIN in data:
        raise DataError('invalid byte sequence for encoding "UTF8"', sqlstate="22021")
    data = data.replace(b"\\\\", _PAIR)
    continues = data.endswith(b"\\\n")
    data = data.replace(b"\\\n", b"\\n")
    end = _END.search(data, 1 if continued else 0)
    if end is not None:
        data = data[: end.start()]
    if b"\\." in data:
        raise DataError("end-of-copy marker corrupt", sqlstate="22P04")
    data = _CODE.sub(lambda code: _coded(code, mark), data)
    if mark == b"\t":
        data = data.replace(b"\\\t", b"\\t")
    else:
        data = data.replace(b"\\" + mark, _PLAIN).replace(b"\t", b"\\t")
        data = data.replace(mark, b"\t").replace(_PLAIN, mark)
    return data.replace(_PAIR, b"\\\\"), end is not None, continues


def _coded(code: re.Match[bytes], mark: bytes) -> bytes:
    """The bytes for an octal or hexadecimal escape."""
    number = int(code[1], 16) if code[1] is not None else int(code[2], 8) & 0xFF
    char = bytes([number])
    if char in (_PAIR, _PLAIN, b"\0"):
        raise DataError(
            f'invalid byte sequence for encoding "UTF8": 0x{number:02x}', sqlstate="22021"
        )
    if char == mark and mark != b"\t":
        return b"\\" + mark
    return _NAMED.get(char, char)


def without_end(source: IO[bytes]) -> int:
    r"""The number of bytes of a CSV file without a last line ``\.``."""
    size = source.seek(0, io.SEEK_END)
    source.seek(max(0, size - 8))
    tail = source.read()
    source.seek(0)
    end = _LAST.search(tail)
    if end is None or (len(tail) < size and end.start(1) == 0):
        return size
    return size - (len(tail) - end.start(1))


def csv_bytes(
    source: IO[bytes], delimiter: str, quote: str, escape: str, columns: int
) -> Iterator[bytes]:
    """CSV in which quotes are escaped by doubling.

    Raises:
        DataError: a quoted field is not terminated.
    """
    pieces = _pieces(source, without_end(source))
    if escape != quote:
        pieces = _requoted(pieces, delimiter.encode(), quote.encode(), escape.encode())
    mark, inside = quote.encode(), False
    section = re.compile(rb"(?m)%b[^%b]*(?:%b|\Z)|^\r?\n" % ((re.escape(mark),) * 3))
    for data in pieces:
        odd = data.count(mark) % 2 == 1
        if columns == 1 or _BLANK.search(data) is None:
            yield data
        else:
            whole = mark + data if inside else data
            done = section.sub(_not_blank, whole)
            yield done[1:] if inside else done
        inside ^= odd
    if inside:
        raise DataError("unterminated CSV quoted field", sqlstate="22P04")


def _not_blank(found: re.Match[bytes]) -> bytes:
    return EMPTY_LINE.encode() + b"\n" if found[0] in (b"\n", b"\r\n") else found[0]


def _pieces(source: IO[bytes], size: int) -> Iterator[bytes]:
    """The first ``size`` bytes, cut at line ends."""
    while size > 0 and (lines := source.readlines(min(_CHUNK, size))):
        data = b"".join(lines)[:size]
        size -= len(data)
        yield data


def _requoted(pieces: Iterator[bytes], mark: bytes, quote: bytes, escape: bytes) -> Iterator[bytes]:
    """CSV with another ESCAPE character rewritten. ESCAPE counts only inside quotes and before a quote or itself;
    fields with quotes are written anew.
    """
    q, e, d = (re.escape(one) for one in (quote, escape, mark))
    section = rb"%b((?:[^%b%b]+|%b[%b%b]|%b)*+)(%b|\Z)" % (q, q, e, e, q, e, e, q)
    plain = rb"[^%b%b\r\n]*+" % (q, d)
    field = re.compile(rb"(?:(?<=[%b\r\n])|\A)%b(?:%b%b)+" % (d, plain, section, plain), re.DOTALL)
    part = re.compile(section, re.DOTALL)
    pair = re.compile(rb"%b([%b%b])" % (e, q, e))
    open_at = -1

    def written(found: re.Match[bytes]) -> bytes:
        nonlocal open_at
        if not found[2]:
            open_at = found.start()
            return b""
        body = part.sub(lambda one: pair.sub(rb"\1", one[1]), found[0])
        return quote + body.replace(quote, quote * 2) + quote

    held, wanted = b"", 0
    for data in itertools.chain(pieces, [b""]):
        held += data
        if data and len(held) < wanted:
            continue
        open_at = -1
        done = field.sub(written, held)
        # A field that continues is matched again only when twice as much of it is there, which keeps the total work
        # linear.
        held = held[open_at:] if open_at >= 0 else b""
        wanted = 2 * len(held)
        yield done
    if held:
        # The last field is not terminated: let the caller see its open quote.
        yield quote
