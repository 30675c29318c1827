"""Writes objects, by one PutObject or by a multipart upload with parallel parts.

Promise: an object appears whole or not at all, by the one request that `Put.commit` or `Multipart.commit` sends. A
multipart upload that is not committed is aborted, also when its writer fails, so that it costs no storage; only a
killed writer leaves one behind, see `unfinished`. Trade-off: a part is copied once for sending, so an upload holds up
to eight parts beside the value.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import unquote_plus

from botocore import exceptions as boto

from mzsql.location import Indeterminate, LocationError, Unfinished
from mzsql_s3.client import Call, Requests, content_crc32, content_md5
from mzsql_s3.errors import Strange, Verdict, code_of, etag_of, next_page
from mzsql_s3.options import MOST_PARTS
from mzsql_s3.reads import probe

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

REFUSED = ("PreconditionFailed", "412", "NoSuchKey", "404", "NotImplemented", "501")
"""The error codes for a condition that does not hold, or that the server does not support."""
_GONE = ("NoSuchUpload",)
_NEXT_PART = {"PartNumberMarker": "NextPartNumberMarker"}
_log = logging.getLogger(__name__)


class Condition(NamedTuple):
    """When a write may take effect: if there is no object (no ETag), or if it is the one with this ETag."""

    etag: str | None = None

    def parameters(self) -> dict[str, str]:
        """boto3's parameters."""
        return {"IfNoneMatch": "*"} if self.etag is None else {"IfMatch": self.etag}


class Write(Protocol):
    """A value to be written as an object of ``size`` bytes."""

    size: int

    def etag(self) -> str:
        """The object's ETag, for servers that compute it from MD5s; empty if the server does not."""

    def commit(self, condition: Condition | None) -> None:
        """Make it the object.

        Raises:
            ClientError: the server refused, with one of the codes in `REFUSED`.
        """

    def abandon(self) -> None:
        """Leave nothing behind. Idempotent; no effect after a commit."""


def _checksum(requests: Requests, body: bytes) -> dict[str, str]:
    """The parameters with which the server checks the body."""
    if requests.place.options.checksums == "crc32":
        return {"ChecksumAlgorithm": "CRC32", "ChecksumCRC32": content_crc32(body)}
    return {"ContentMD5": content_md5(body)}


class Put:
    """A short value."""

    def __init__(self, requests: Requests, call: Call, object_key: str, value: bytes) -> None:
        self._requests = requests
        self._call = call
        self._key = object_key
        self._value = value
        self.size = len(value)
        self._checksum = _checksum(requests, value)

    def etag(self) -> str:
        """See `Write.etag`."""
        return f'"{hashlib.md5(self._value, usedforsecurity=False).hexdigest()}"'

    def commit(self, condition: Condition | None) -> None:
        """See `Write.commit`."""
        more: dict[str, Any] = dict(self._checksum)
        if condition is not None:
            more |= condition.parameters()

        def put(client: S3Client) -> None:
            answer = client.put_object(
                Bucket=self._requests.place.bucket, Key=self._key, Body=self._value, **more
            )
            etag_of(answer)

        self._call.send(put, takes_effect=True, expected=REFUSED if condition else ())

    def abandon(self) -> None:
        """See `Write.abandon`; nothing to do."""


class Multipart:
    """A long value, whose parts are uploaded on construction."""

    def __init__(self, requests: Requests, call: Call, object_key: str, value: bytes) -> None:
        self._requests = requests
        self._call = call
        self._where: dict[str, Any] = {"Bucket": requests.place.bucket, "Key": object_key}
        self._value = value
        self.size = len(value)
        size = max(requests.place.options.part_size, -(-len(value) // MOST_PARTS))
        self._cuts = [(at, min(at + size, len(value))) for at in range(0, len(value), size)]
        self._upload = ""
        self._parts: list[dict[str, Any]] = []
        self._begin()

    def _begin(self) -> None:
        crc32 = self._requests.place.options.checksums == "crc32"
        more: Any = {"ChecksumAlgorithm": "CRC32"} if crc32 else {}

        def create(client: S3Client) -> str:
            upload = client.create_multipart_upload(**self._where, **more).get("UploadId")
            if not upload:
                raise Strange
            return upload

        # A try with a lost response leaves an empty upload, which a sweep finds.
        self._upload = self._call.send(create)
        try:
            self._parts = self._call.side_by_side(
                [
                    lambda n=number, c=cut: self._part(n, c)  # type: ignore[misc]
                    for number, cut in enumerate(self._cuts, start=1)
                ]
            )
        except BaseException:
            self.abandon()
            raise

    def _part(self, number: int, cut: tuple[int, int]) -> dict[str, Any]:
        def upload(client: S3Client) -> dict[str, Any]:
            body = bytes(memoryview(self._value)[cut[0] : cut[1]])
            checksum: Any = _checksum(self._requests, body)
            answer = client.upload_part(
                **self._where, UploadId=self._upload, PartNumber=number, Body=body, **checksum
            )
            done = {"PartNumber": number, "ETag": etag_of(answer)}
            if "ChecksumCRC32" in checksum:
                done["ChecksumCRC32"] = checksum["ChecksumCRC32"]
            return done

        return self._call.send(upload)

    def commit(self, condition: Condition | None) -> None:
        """See `Write.commit`."""
        more: Any = condition.parameters() if condition is not None else {}
        parts: Any = {"Parts": self._parts}

        def complete(client: S3Client) -> None:
            answer = client.complete_multipart_upload(
                **self._where, UploadId=self._upload, MultipartUpload=parts, **more
            )
            etag_of(answer)

        expected = (*_GONE, *(REFUSED if condition else ()))
        gone = False
        try:
            self._call.send(complete, takes_effect=True, expected=expected)
        except boto.ClientError as failure:
            if code_of(failure) not in _GONE:
                raise
            gone = True
        self._upload = ""
        if gone:
            self._see_whether_done()

    def _see_whether_done(self) -> None:
        """Check an upload that no longer exists: completed by a try whose response was lost, or aborted by someone
        else.

        Raises:
            Indeterminate: the object is not this upload's.
        """
        found = probe(self._requests, self._call, self._where["Key"])
        if found is not None and found == (self.size, self.etag()):
            return
        gone = Verdict(True, True, "its multipart upload is gone: given up by a sweep, or complete")
        failed = self._call.failed(gone)
        raise Indeterminate(failed.message, hint="Do it again.")

    def etag(self) -> str:
        """See `Write.etag`."""
        try:
            parts = b"".join(bytes.fromhex(part["ETag"].strip('"')) for part in self._parts)
        except ValueError:
            return ""
        return f'"{hashlib.md5(parts, usedforsecurity=False).hexdigest()}-{len(self._parts)}"'

    def abandon(self) -> None:
        """See `Write.abandon`; if the server fails, a sweep finds the upload."""
        upload, self._upload = self._upload, ""
        if upload:
            try:
                # In the remaining time or, if there is hardly any, a little more; the caller's limit holds in any case.
                options = self._requests.place.options
                within = max(self._call.remaining(), min(options.timeout, options.read_timeout))
                call = Call(self._requests, "give up an upload", "", within=within)
                abort(call, self._where, upload)
            except LocationError:
                _log.warning(
                    "S3 %s: an unfinished upload stays behind until a sweep",
                    self._requests.place.url,
                )


def abort(call: Call, where: dict[str, Any], upload: str) -> None:
    """Abort an upload; one that no longer exists is no error."""

    def ask(client: S3Client) -> None:
        client.abort_multipart_upload(**where, UploadId=upload)

    try:
        call.send(ask, takes_effect=True, expected=_GONE)
    except boto.ClientError:
        return


def unfinished(requests: Requests) -> Iterator[Unfinished]:
    """All multipart uploads below the prefix, each with the size of its parts, which costs a request per upload."""
    bucket, prefix = requests.place.bucket, requests.place.below("")
    after: dict[str, Any] = {}
    while True:
        call = Call(requests, "list the unfinished uploads", "")

        def ask(client: S3Client, after: dict[str, Any] = after) -> Any:
            page = client.list_multipart_uploads(
                Bucket=bucket, Prefix=prefix, EncodingType="url", **after
            )
            return page, page.get("IsTruncated") and _after(page, after)

        page, after = call.send(ask)
        decode = unquote_plus if page.get("EncodingType") == "url" else str
        for one in page.get("Uploads", []):
            object_key = decode(one["Key"])
            key = requests.place.blob_key(object_key)
            size = None if key is None else _size(requests, object_key, one["UploadId"])
            if key is not None and size is not None:
                started = int(one["Initiated"].timestamp() * 1000)
                yield Unfinished(key, one["UploadId"], started, size)
        if not after:
            return


def _after(page: Any, before: dict[str, Any]) -> dict[str, Any]:
    """The parameters for the next page of uploads."""
    decode = unquote_plus if page.get("EncodingType") == "url" else str
    names = {"KeyMarker": "NextKeyMarker", "UploadIdMarker": "NextUploadIdMarker"}
    marker = page.get("NextKeyMarker")
    return next_page({**page, "NextKeyMarker": marker and decode(marker)}, names, before)


def _size(requests: Requests, object_key: str, upload: str) -> int | None:
    """The size of an upload's parts; `None` if it no longer exists."""
    where: dict[str, Any] = {
        "Bucket": requests.place.bucket,
        "Key": object_key,
        "UploadId": upload,
    }
    size = 0
    after: dict[str, Any] = {}
    while True:
        call = Call(requests, "list the parts of an unfinished upload", "")

        def ask(client: S3Client, after: dict[str, Any] = after) -> Any:
            page = client.list_parts(**where, **after)
            return page, page.get("IsTruncated") and next_page(page, _NEXT_PART, after)

        try:
            page, after = call.send(ask, expected=(*_GONE, "NoSuchKey"))
        except boto.ClientError:
            return None
        size += sum(int(part["Size"]) for part in page.get("Parts", []))
        if not after:
            return size
