"""A Blob in a bucket of S3, or of a server that speaks its API: ``s3://bucket/prefix?endpoint=…&region=…``.

Promise: linearizable per key, also where tries are repeated, on a server with conditional writes (S3, MinIO and others have them). A try
whose answer was lost may reach the server late; unconditional, it would undo a later write. So a write says what it replaces: nothing
(If-None-Match: *, which is all it takes for objects written once), or the object whose ETag it saw (If-Match). A deletion names the object
whose size it tells. A server that answers it does not know conditions is sent none from then on; one that ignores them loses only this
promise. An ETag is of the content, so it cannot tell whether an object was replaced and then put back; and where an answer was lost,
nothing tells whether what another wrote since came before or after, so that a write may then show on both sides of it. Trade-off:
overwriting costs three requests, which is rare, as keys of shards are never written twice; a deletion costs two.
Source: "Conditional requests" of the S3 documentation.
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
"""Keys of one DeleteObjects."""
_NEXT = {"ContinuationToken": "NextContinuationToken"}
_UNKNOWN = ("NotImplemented", "501")
_DOUBTS = 4
"""So often the server may refuse a condition that holds as far as can be seen; after that the write or deletion has none."""
_AGAIN_LATER = frozenset(
    {"InternalError", "SlowDown", "ServiceUnavailable", "OperationAborted", "RequestTimeout"}
)


class S3Blob:
    """Objects below a prefix of a bucket. Opening makes no request to the bucket; the first use tells whether it is there.

    Raises:
        Determinate: there are no credentials, or there is no such profile.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self._requests = Requests(place)
        self._conditional = place.options.conditional == "auto"

    def __repr__(self) -> str:
        return f"S3Blob({self.place.url})"

    @property
    def requests(self) -> Mapping[str, int]:
        """HTTP requests sent so far by this handle, by operation (``PutObject``, …), each try counted."""
        return self._requests.sent.sent()

    def spark_path(self, key: str) -> str:
        """``s3a://bucket/prefix/key``."""
        return f"s3a://{self.place.bucket}/{self.place.object_key(key)}"

    def get(self, key: str) -> bytes | None:
        """The value of ``key``, or `None`."""
        object_key = self.place.object_key(key)
        return Read(self._requests, self._call("read", key), object_key, 0, None).result()

    def get_range(self, key: str, offset: int, length: int) -> bytes | None:
        """Up to ``length`` bytes from ``offset``; empty beyond the end, `None` when there is no such key."""
        object_key = self.place.object_key(key)
        if offset < 0 or length < 0:
            raise UsageError(f"not a range of bytes: {length} from {offset}")
        call = self._call("read", key)
        if length == 0:
            return None if probe(self._requests, call, object_key) is None else b""
        return Read(self._requests, call, object_key, offset, length).result()

    def set(self, key: str, value: bytes) -> None:
        """Map ``key`` to ``value``, atomically and durably."""
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

        Tried until it is, or until the call's time is over: a write without a condition could arrive late and undo a later one.
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
                # Another wrote after this call saw what was there: all is as if this write had come right before the other.
                return
            seen = None if found is None else found.etag
            doubts += seen == condition.etag
            condition = Condition(seen)
        write.commit(None)

    def delete(self, key: str) -> int | None:
        """Remove ``key``; its former size in bytes, or `None`."""
        object_key = self.place.object_key(key)
        call = self._call("delete", key)
        found: Found | None = None
        doubts = 0
        while True:
            before, found = found, probe(self._requests, call, object_key)
            if found is None:
                # Gone; by a try that failed, where there was one, even if its answer was that it did nothing.
                return before.size if before is not None and call.repeated else None
            doubts += found == before
            if self._remove(call, object_key, found if doubts < _DOUBTS else None):
                return found.size

    def _remove(self, call: Call, object_key: str, found: Found | None) -> bool:
        """Remove an object, if it is ``found`` where the server can see to that; whether it was."""
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
        """Remove every key there is, a thousand by a request."""
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
                # Of several the one that another try does not mend.
                worst = min(errors.values(), key=lambda one: one["Code"] in _AGAIN_LATER)
                raise boto.ClientError(
                    {"Error": {"Code": worst["Code"], "Message": worst.get("Message", "")}},
                    "DeleteObjects",
                )

        call.send(ask, takes_effect=True)

    def list_keys_and_metadata(self, prefix: str) -> Iterator[tuple[str, int]]:
        """Each key that starts with ``prefix``, with its size, a page at a time; what is no key (a directory's marker) is left out."""
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
        """The multipart uploads under way, and those of writers that were killed."""
        return unfinished(self._requests)

    def abort_unfinished(self, unfinished: Unfinished) -> None:
        """Give up one multipart upload; one that is not there any more is no error."""
        where = {"Bucket": self.place.bucket, "Key": self.place.object_key(unfinished.key)}
        abort(self._call("give up the upload of", unfinished.key), where, unfinished.upload)

    def make_durable(self, keys: Sequence[str]) -> None:
        """Check that the objects are there: what a server has accepted, by whatever way, it keeps.

        Raises:
            Determinate: one is not there.
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
