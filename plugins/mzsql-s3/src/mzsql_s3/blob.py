"""A Blob in a bucket of S3, or of a server with its API: ``s3://bucket/prefix?endpoint=…&region=…``.

Promise: linearizable per key, even with retries, on a server with conditional writes (S3, MinIO and others have them).
A try whose response was lost may reach the server late, and if it were unconditional it would undo a later write. So a
write states what it replaces: nothing (If-None-Match: *, enough for objects written once), or the object with the ETag
it saw (If-Match). A deletion states which object's size it reports. A server that responds that it does not support
conditions gets none from then on; one that ignores them loses only this promise. An ETag depends on content, so it does
not show that an object was replaced and then put back. And after a lost response, nothing tells whether another's write
came before or after, so that a write may appear on both sides of it. Trade-off: overwriting costs three requests, which
is rare, since keys of shards are written once; a deletion costs two. Source: "Conditional requests" of the S3
documentation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore import exceptions as boto

from mzsql.location import Unfinished, UsageError
from mzsql_s3.client import Call, Requests
from mzsql_s3.errors import Verdict, code_of, next_page
from mzsql_s3.options import MOST_OBJECT, Place
from mzsql_s3.reads import Found, Read, probe
from mzsql_s3.uploads import REFUSED, Condition, Multipart, Put, Write, abort, unfinished

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

_MANY = 1000
"""The number of keys in one DeleteObjects."""
_NEXT = {"ContinuationToken": "NextContinuationToken"}
_UNKNOWN = ("NotImplemented", "501")
_DOUBTS = 4
"""How often the server may refuse a condition that seems to hold; after that the write or deletion is unconditional."""
_AGAIN_LATER = frozenset(
    {"InternalError", "SlowDown", "ServiceUnavailable", "OperationAborted", "RequestTimeout"}
)


class S3Blob:
    """Objects below a prefix of a bucket. Opening sends nothing to the bucket; the first use shows whether it exists.

    Raises:
        Determinate: the credentials or the profile do not exist.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._requests = Requests(place)
        self._conditional = place.options.conditional == "auto"

    def __repr__(self) -> str:
        return f"S3Blob({self.place.url})"

    @property
    def requests(self) -> Mapping[str, int]:
        """The number of HTTP requests of this handle by operation (``PutObject``, …), retries included."""
        return self._requests.sent.sent()

    def spark_path(self, key: str) -> str:
        """``s3a://bucket/prefix/key``."""
        return f"s3a://{self.place.bucket}/{self.place.object_key(key)}"

    def get(self, key: str) -> bytes | None:
        """The value of ``key``, or `None`."""
        object_key = self.place.object_key(key)
        return Read(self._requests, self._call("read", key), object_key, 0, None).result()

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Up to ``length`` bytes from ``offset``; empty beyond the end, `None` if there is no such key.

        Raises:
            UsageError: the offset or the length is negative.
            Determinate: S3 did not answer, or refused.
        """
        object_key = self.place.object_key(key)
        if offset < 0 or length < 0:
            raise UsageError(f"not a range of bytes: {length} from {offset}")
        call = self._call("read", key)
        if length == 0:
            return None if probe(self._requests, call, object_key) is None else b""
        return Read(self._requests, call, object_key, offset, length).result()

    def set(self, key: str, value: bytes) -> None:
        """Map ``key`` to ``value``, atomically and durably.

        Raises:
            UsageError: the value is larger than S3 takes for an object.
            Determinate: the object was not written.
            Indeterminate: it may have been.
        """
        object_key = self.place.object_key(key)
        if len(value) > MOST_OBJECT:
            raise UsageError(f"{len(value)} bytes are more than S3 takes for an object")
        call = self._call("write", key, len(value))
        long = len(value) > self.place.options.multipart_threshold
        write: Write = (Multipart if long else Put)(self._requests, call, object_key, value)
        try:
            self._commit(call, object_key, write)
        finally:
            write.abandon()

    def _commit(self, call: Call, object_key: str, write: Write) -> None:
        """Make the write the object under ``object_key``, whatever is there now.

        Retried until it is, or until the call's time is over: an unconditional write could arrive late and undo a later
        one.
        """
        condition, doubts = Condition(), 0
        while self._conditional and doubts < _DOUBTS:
            try:
                write.commit(condition)
            except boto.ClientError as failure:
                if code_of(failure) in _UNKNOWN:
                    self._conditional = False
                    break
            else:
                return
            found = probe(self._requests, call, object_key)
            if found is not None and found == (write.size, write.etag()):
                return  # The very value is there; by a try whose answer was lost, or else by another's write, which is as good.
            if condition.etag is not None and found is not None and found.etag != condition.etag:
                # Another write came after this call looked: as if this write had come right before that one.
                return
            seen = None if found is None else found.etag
            doubts += seen == condition.etag
            condition = Condition(seen)
        write.commit(None)

    def delete(self, key: str) -> int | None:
        """Remove ``key``; returns its former size in bytes, or `None`."""
        object_key = self.place.object_key(key)
        call = self._call("delete", key)
        found: Found | None = None
        doubts = 0
        while True:
            before, found = found, probe(self._requests, call, object_key)
            if found is None:
                # Gone, perhaps by a failed try of this call, even one with the response that it did nothing.
                return before.size if before is not None and call.repeated else None
            doubts += found == before
            if self._remove(call, object_key, found if doubts < _DOUBTS else None):
                return found.size

    def _remove(self, call: Call, object_key: str, found: Found | None) -> bool:
        """Remove an object if it is ``found``, as far as the server can check that; returns whether it did."""
        conditional = self._conditional and found is not None
        more: dict[str, Any] = {"IfMatch": found.etag} if conditional and found else {}

        def remove(client: S3Client) -> None:
            client.delete_object(Bucket=self.place.bucket, Key=object_key, **more)

        try:
            call.send(remove, takes_effect=True, expected=REFUSED if conditional else ())
        except boto.ClientError as failure:
            if code_of(failure) in _UNKNOWN:
                self._conditional = False
            return False
        return True

    def delete_many(self, keys: Sequence[str]) -> None:
        """Remove the keys that exist, a thousand per request."""
        objects = [self.place.object_key(key) for key in keys]
        for start in range(0, len(objects), _MANY):
            self._delete_page(objects[start : start + _MANY])

    def _delete_page(self, objects: list[str]) -> None:
        call = self._call("delete", f"{len(objects)} objects")
        left = objects

        def ask(client: S3Client) -> None:
            nonlocal left
            answer = client.delete_objects(
                Bucket=self.place.bucket,
                Delete={"Objects": [{"Key": key} for key in left], "Quiet": True},
            )
            errors = {
                one["Key"]: one for one in answer.get("Errors", []) if one["Code"] != "NoSuchKey"
            }
            left = [key for key in left if key in errors]
            if left:
                # Of several errors, one that a retry does not help.
                worst = min(errors.values(), key=lambda one: one["Code"] in _AGAIN_LATER)
                raise boto.ClientError(
                    {"Error": {"Code": worst["Code"], "Message": worst.get("Message", "")}},
                    "DeleteObjects",
                )

        call.send(ask, takes_effect=True)

    def list_keys_and_metadata(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Each key with the given prefix and its size, in pages; objects that are no keys (a directory's marker) are
        left out.
        """
        start = self.place.below(prefix)
        after: dict[str, Any] = {}
        while True:
            call = self._call("list", prefix)

            def ask(client: S3Client, after: dict[str, Any] = after) -> Any:
                page = client.list_objects_v2(Bucket=self.place.bucket, Prefix=start, **after)
                return page, page.get("IsTruncated") and next_page(page, _NEXT, after)

            page, after = call.send(ask)
            for one in page.get("Contents", []):
                key = self.place.blob_key(one["Key"])
                if key is not None:
                    yield key, one["Size"]
            if not after:
                return

    def list_unfinished(self) -> Iterator[Unfinished]:
        """The multipart uploads in progress, including those of killed writers."""
        return unfinished(self._requests)

    def abort_unfinished(self, unfinished: Unfinished) -> None:
        """Abort a multipart upload; one that no longer exists is no error."""
        where = {"Bucket": self.place.bucket, "Key": self.place.object_key(unfinished.key)}
        abort(self._call("give up the upload of", unfinished.key), where, unfinished.upload)

    def make_durable(self, keys: Sequence[str]) -> None:
        """Check that the objects exist: whatever a server has accepted is durable.

        Raises:
            Determinate: one does not exist.
        """
        call = self._call("find", f"{len(keys)} objects")
        objects = [self.place.object_key(key) for key in keys]
        found = call.side_by_side(
            [lambda name=name: probe(self._requests, call, name) for name in objects]  # type: ignore[misc]
        )
        for key, one in zip(keys, found, strict=True):
            if one is None:
                missing = Verdict(False, False, f"there is no object {key!r}")
                raise call.failed(missing)

    def _call(self, act: str, key: str, moves: int = 0) -> Call:
        return Call(self._requests, act, key, moves)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._requests.close()
