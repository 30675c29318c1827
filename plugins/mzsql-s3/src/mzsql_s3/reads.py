"""Reading objects: whole or a stretch, long ones in ranges side by side.

Promise: what is returned is one version of the object, as long as the server said and, where its checksum came along, matching that. The
ranges after the first answer are asked for under its ETag, so one that meets a replaced object fails and everything is read anew.
Trade-off: the first answer is that of the whole stretch, so that a short object costs one request; of a long one it is read up to a
part's length while the other ranges come by other connections, and then cut off, which costs its connection. Ranges of an object that is
overwritten faster than they come would never fit together; after a few rounds all is read from one answer, slower but of one version.
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
"""Longer bodies are read in stretches, between which it is seen that time is over."""
ABSENT = ("NoSuchKey",)
_CHANGED = ("PreconditionFailed", "412", *ABSENT, "InvalidRange")
_RANGED = 3
"""So often ranges side by side are tried on an object that is replaced under the reader."""
_ROUNDS = 6
"""So often an object is read; after `_RANGED` rounds from one answer, which only damage can spoil."""


class Found(NamedTuple):
    """An object's size in bytes and its ETag."""

    size: int
    etag: str


def probe(requests: Requests, call: Call, object_key: str) -> Found | None:
    """The object's size and ETag, or `None`.

    By a GET of a byte, as the answer to HEAD has no body and so does not tell a missing object from a missing bucket.
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
    """As `probe`, for an object without a byte, of which there is no range."""

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
    """The size of the whole object that an answer is about."""
    described = answer.get("ContentRange")
    if described is None:  # a server that ignores Range
        return length_of(answer)
    return int(described.rpartition("/")[2])


class _Replaced(Exception):
    """The object is not the one of which the first answer was."""


class Read:
    """One reading of ``length`` bytes from ``offset`` (`None`: to the end) of an object."""

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
        """The bytes, fewer where the object ends; `None` when there is no object."""
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
        """The answer for the whole stretch: all of it when short or read ``alone``, else the first part, and the others begun."""
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
        """The stretch out of the answer of a server that ignores Range."""
        whole = b"".join(read_body(self._call, answer, length_of(answer)))
        end = None if self._length is None else self._offset + self._length
        return [whole[self._offset : end]]

    def _begin_rest(self, start: int, end: int) -> None:
        size, etag = self._requests.place.options.part_size, self._etag
        for at in range(start, end, size):
            fetch = functools.partial(self._range, at, min(size, end - at), etag)
            self._rest.append(self._requests.submit(fetch))

    def _range(self, offset: int, length: int, etag: str) -> list[bytes]:
        """Some bytes of the version with this ETag.

        Raises:
            _Replaced: that is not the object any more.
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
        """Let no range outlive the reading."""
        rest, self._rest, self._etag = self._rest, [], ""
        running = [future for future in rest if not future.cancel()]
        wait(running)


def read_body(call: Call, answer: Any, length: int) -> list[bytes]:
    """The first ``length`` bytes of an answer's body; what is beyond is cut off with the connection.

    Raises:
        ShortBody: the body ended early, or did not go on in time.
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
    """The checksum if it is that of the whole object, not one of its parts' checksums (which ends in their number)."""
    return None if checksum is None or "-" in checksum else checksum
