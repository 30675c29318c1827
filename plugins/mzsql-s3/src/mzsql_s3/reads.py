"""Reads objects, whole or a range; long ones as parallel ranges.

Promise: the result is one version of the object, with the length that the server stated and, where it sent one,
matching checksum. Ranges after the first response are requested with its ETag, so one that meets a replaced object
fails, and the read starts over. Trade-off: the first request is for the whole range, so that a short object costs one
request. For a long one, one part of the response is read while other connections fetch the other ranges; then it is cut
off, which costs its connection. Ranges of an object overwritten faster than they arrive would never fit together, so
after a few rounds one response is read to its end: slower, but one version.
"""

from __future__ import annotations

import functools
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore import exceptions as boto
from urllib3.exceptions import HTTPError

from mzsql_s3.client import Call, Requests, content_crc32
from mzsql_s3.errors import ShortBody, Strange, Verdict, code_of, etag_of, length_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_READ_BYTES = 256 * 1024
_AT_ONCE = 64 * 1024 * 1024
"""Longer bodies are read in pieces of this size, between which the deadline is checked."""
ABSENT = ("NoSuchKey",)
_CHANGED = ("PreconditionFailed", "412", *ABSENT, "InvalidRange")
_RANGED = 3
"""The number of rounds with parallel ranges, for an object that is being replaced."""
_ROUNDS = 6
"""The number of rounds in all; those after `_RANGED` read a single response, which only damage can spoil."""


class Found(NamedTuple):
    """The size in bytes and the ETag of an object."""

    size: int
    etag: str


def probe(requests: Requests, call: Call, object_key: str) -> Found | None:
    """The object's size and ETag, or `None`.

    Done by a GET of one byte: the response to HEAD has no body, so it would not tell a missing object from a missing
    bucket.

    Args:
        requests: the handle's requests.
        call: the operation.
        object_key: the object's S3 key.
    """

    def ask(client: S3Client) -> Found:
        answer = client.get_object(Bucket=requests.place.bucket, Key=object_key, Range="bytes=0-0")
        read_body(call, answer, length_of(answer))
        return Found(_total(answer), etag_of(answer))

    try:
        return call.send(ask, expected=(*ABSENT, "InvalidRange"))
    except boto.ClientError as failure:
        if code_of(failure) != "InvalidRange":
            return None
    return _probe_empty(requests, call, object_key)


def _probe_empty(requests: Requests, call: Call, object_key: str) -> Found | None:
    """Like `probe`, for an empty object, which has no range."""

    def ask(client: S3Client) -> Found:
        answer = client.get_object(Bucket=requests.place.bucket, Key=object_key)
        size = length_of(answer)
        read_body(call, answer, size)
        return Found(size, etag_of(answer))

    try:
        return call.send(ask, expected=ABSENT)
    except boto.ClientError:
        return None


def _total(answer: Any) -> int:
    """The size of the whole object that a response is about."""
    described = answer.get("ContentRange")
    if described is None:  # a server that ignores Range
        return length_of(answer)
    return int(described.rpartition("/")[2])


class _Replaced(Exception):
    """The object is not the one that the first response was about."""


class Read:
    """A read of ``length`` bytes (`None`: to the end) from ``offset`` of an object."""

    def __init__(
        self, requests: Requests, call: Call, object_key: str, offset: int, length: int | None
    ) -> None:
        self._requests = requests
        self._call = call
        self._key = object_key
        self._offset = offset
        self._length = length
        self._etag = ""
        self._crc32: str | None = None
        self._rest: list[Future[list[bytes]]] = []

    def result(self) -> bytes | None:
        """The bytes, fewer where the object ends; `None` if there is no object.

        Raises:
            Determinate: the object came damaged each time, or could not be read.
        """
        for round_ in range(_ROUNDS):
            first = functools.partial(self._first, alone=round_ >= _RANGED)
            try:
                chunks = self._call.send(first, expected=(*ABSENT, "InvalidRange"))
                for future in self._rest:
                    chunks += future.result()
            except boto.ClientError as failure:
                return b"" if code_of(failure) == "InvalidRange" else None
            except _Replaced:
                continue
            finally:
                self._drop()
            found = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            if self._crc32 is None or self._crc32 == content_crc32(found):
                return found
        raise self._call.failed(
            Verdict(False, True, "the object came damaged each time it was read")
        )

    def _first(self, client: S3Client, *, alone: bool) -> list[bytes]:
        """The response for the whole range: complete if short or ``alone``, else its first part, with the other ranges
        started.
        """
        options = self._requests.place.options
        asked: dict[str, Any] = {}
        if self._offset or self._length is not None:
            end = "" if self._length is None else self._offset + self._length - 1
            asked["Range"] = f"bytes={self._offset}-{end}"
        elif options.checksums == "crc32":
            asked["ChecksumMode"] = "ENABLED"
        answer: Any = client.get_object(Bucket=self._requests.place.bucket, Key=self._key, **asked)
        try:
            etag = etag_of(answer)
        except Strange:
            answer["Body"].close()
            raise
        if "Range" in asked and answer.get("ContentRange") is None:
            return self._cut(answer)
        there = length_of(answer)
        self._crc32 = None if "Range" in asked else _of_whole(answer.get("ChecksumCRC32"))
        if alone or there <= options.multipart_threshold:
            if alone:
                self._call.allow(there)
            return read_body(self._call, answer, there)
        if self._etag != etag:
            self._drop()
            self._etag = etag
            self._call.allow(there)
            self._begin_rest(self._offset + options.part_size, self._offset + there)
        return read_body(self._call, answer, min(options.part_size, there))

    def _cut(self, answer: Any) -> list[bytes]:
        """The range, cut from the response of a server that ignores Range."""
        whole = b"".join(read_body(self._call, answer, length_of(answer)))
        end = None if self._length is None else self._offset + self._length
        return [whole[self._offset : end]]

    def _begin_rest(self, start: int, end: int) -> None:
        size, etag = self._requests.place.options.part_size, self._etag
        for at in range(start, end, size):
            fetch = functools.partial(self._range, at, min(size, end - at), etag)
            self._rest.append(self._requests.submit(fetch))

    def _range(self, offset: int, length: int, etag: str) -> list[bytes]:
        """A range of the version with this ETag.

        Raises:
            _Replaced: the object has another ETag now.
        """

        def ask(client: S3Client) -> list[bytes]:
            answer: Any = client.get_object(
                Bucket=self._requests.place.bucket,
                Key=self._key,
                Range=f"bytes={offset}-{offset + length - 1}",
                IfMatch=etag,
            )
            if etag_of(answer) != etag:
                answer["Body"].close()
                raise _Replaced
            if answer.get("ContentRange") is None:
                answer["Body"].close()
                raise self._call.failed(
                    Verdict(
                        False,
                        False,
                        "the server ignores ranges",
                        "Raise multipart_threshold above the size of all objects.",
                    )
                )
            return read_body(self._call, answer, length)

        try:
            return self._call.send(ask, expected=_CHANGED, passed=_Replaced)
        except boto.ClientError:
            raise _Replaced from None

    def _drop(self) -> None:
        """Cancel the other ranges, or wait for them, so that none outlives the read."""
        rest, self._rest, self._etag = self._rest, [], ""
        running = [future for future in rest if not future.cancel()]
        wait(running)


def read_body(call: Call, answer: Any, length: int) -> list[bytes]:
    """The first ``length`` bytes of a response's body; what follows is dropped with the connection.

    Args:
        call: the operation.
        answer: the response.
        length: the number of bytes.

    Raises:
        ShortBody: the body ended early, or stalled.
    """
    whole = length == length_of(answer) and length <= _AT_ONCE
    try:
        with answer["Body"] as raw:
            if not whole:
                return _read_stretch(call, raw, length)
            found = raw.read()  # at once, as that copies nothing
    except HTTPError as failure:
        call.check()
        raise ShortBody(
            f"the answer of {length} bytes broke off ({type(failure).__name__})"
        ) from None
    if len(found) != length:
        raise ShortBody(f"the answer ended after {len(found)} of {length} bytes")
    return [found]


def _read_stretch(call: Call, raw: Any, length: int) -> list[bytes]:
    chunks = []
    got = 0
    while got < length:
        call.check()
        chunk = raw.read1(min(_READ_BYTES, length - got))
        if not chunk:
            raise ShortBody(f"the answer ended after {got} of {length} bytes")
        chunks.append(chunk)
        got += len(chunk)
    return chunks


def _of_whole(checksum: str | None) -> str | None:
    """The checksum, if it is that of the whole object and not one composed of its parts' (which ends in their number)."""
    return None if checksum is None or "-" in checksum else checksum
