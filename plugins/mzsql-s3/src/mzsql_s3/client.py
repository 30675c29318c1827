"""Requests to S3: one boto3 client per process, retries with full jitter within one deadline, and a limit on concurrent
requests.

Promise: every operation ends, with its result or an error, within the time of the options or of its caller, whichever
is shorter (`mzsql_s3.connections` enforces that on the wire), and at most a read timeout later where it has an upload
to abort. A forked child makes a client of its own. Nothing is sent unless an operation asks for it. Retries are done
here, not by botocore, because only here are the operation's deadline known, and whether an earlier try may have taken
effect. Source: Brooker, "Exponential Backoff And Jitter" (full jitter).
"""

from __future__ import annotations

import base64
import functools
import hashlib
import io
import os
import threading
import time
import weakref
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

import boto3
import tenacity
from botocore import exceptions as boto
from botocore.config import Config
from botocore.loaders import create_loader
from botocore.session import Session as BotocoreSession

from mzsql.location import Determinate, LocationError, seconds_left
from mzsql_s3.connections import keep_deadlines
from mzsql_s3.errors import Late, Verdict, code_of, error, judge
from mzsql_s3.metrics import REQUESTS, RequestCounts
from mzsql_s3.options import MIB, Place

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")

_FIRST_PAUSE = 0.1
_LAST_PAUSE = 3.0
_LEAST_RATE = MIB
"""Bytes per second; an operation gets additional time for the bytes it moves, at this rate."""
_SEND_BYTES = 256 * 1024
"""The size of a block to send; the connection's timeout is for a block, not for a whole part."""
_SHORT_BYTES = MIB
_SIDE_BY_SIDE = 8
"""The number of a handle's parallel parts or ranges, which bounds their memory."""


class Call:
    """An operation for a caller: its deadline and its retries. Threads may share it.

    Attributes:
        happened: whether a failed try may have taken effect.
        repeated: whether a try that should take effect has failed, in any way.
    """

    def __init__(
        self,
        requests: Requests,
        act: str,
        key: str,
        moves: int = 0,
        *,
        within: float | None = None,
    ) -> None:
        """``within``: the seconds it has, in place of the options' timeout."""
        self._requests = requests
        self._act = act
        self._key = key
        self._seconds = requests.place.options.timeout if within is None else within
        self._began = time.monotonic()
        # Read on the caller's thread, since parts and ranges run on others.
        self._patience = seconds_left()
        self.happened = False
        self.repeated = False
        self._secrets: frozenset[str] = frozenset()
        self.allow(moves)

    def allow(self, moves: int) -> None:
        """Extend the deadline for ``moves`` bytes, but never beyond the caller's."""
        self._seconds += moves / _LEAST_RATE
        if self._patience is not None:
            self._seconds = min(self._seconds, self._patience)
        self._end = self._began + self._seconds

    def remaining(self) -> float:
        """The seconds left, at least 0."""
        return max(0.0, self._end - time.monotonic())

    def signed(self, headers: Mapping[str, Any]) -> None:
        """Remember the secrets of a request, in case the response quotes them."""
        self._secrets |= _secrets(headers)

    def check(self) -> None:
        """Check that there is time left.

        Raises:
            Late: there is none.
        """
        if time.monotonic() >= self._end:
            raise Late(f"not done in {self._seconds:g} s")

    def send(
        self,
        request: Callable[[S3Client], T],
        *,
        takes_effect: bool = False,
        expected: Collection[str] = (),
        passed: type[Exception] | tuple[type[Exception], ...] = (),
    ) -> T:
        """The result of ``request(client)``, retried while that may help.

        Args:
            request: the request.
            takes_effect: whether it changes what others see.
            expected: the error codes that the caller handles.
            passed: the exceptions of ``request`` that the caller handles.

        Raises:
            ClientError: the server responded with one of the ``expected`` codes.
            passed: ``request`` raised it.
            Determinate: it failed for good, without effect.
            Indeterminate: it failed for good, and may have taken effect.
        """
        tries = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(self._requests.place.options.attempts)
            | tenacity.stop_before_delay(self.remaining()),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_PAUSE, max=_LAST_PAUSE),
            retry=tenacity.retry_if_exception(lambda f: self._again(f, expected, passed)),
            reraise=True,
        )
        tried = 0

        def attempt() -> T:
            nonlocal tried
            tried += 1
            try:
                return self._requests.once(self, request)
            except Exception as failure:
                if takes_effect and not _answered(failure, expected):
                    self.repeated = True
                    if not isinstance(failure, LocationError):
                        self.happened |= self._verdict(failure).happened
                raise

        try:
            return tries(attempt)
        except LocationError:
            raise
        except passed:
            raise
        except Exception as failure:
            if _answered(failure, expected):
                raise
            failed = self.failed(self._verdict(failure), tried)
        # Not from the failure: botocore's exceptions hold the request, with its signature and session token.
        raise failed

    def _again(
        self,
        failure: BaseException,
        expected: Collection[str],
        passed: type[Exception] | tuple[type[Exception], ...],
    ) -> bool:
        if not isinstance(failure, Exception) or isinstance(failure, (LocationError, passed)):
            return False
        return not _answered(failure, expected) and self._verdict(failure).again

    def _verdict(self, failure: Exception) -> Verdict:
        return judge(failure, self._requests.place.bucket)

    def failed(self, verdict: Verdict, tries: int = 1) -> LocationError:
        """The operation's error."""
        url = self._requests.place.url
        why = verdict.why
        for secret in self._secrets:
            why = why.replace(secret, "***")
        verdict = verdict._replace(why=why)
        return error(self._act, self._key, url, verdict, happened=self.happened, tries=tries)

    def side_by_side(self, acts: Sequence[Callable[[], T]]) -> list[T]:
        """The results of ``acts``, run on the handle's threads.

        After a failure no more are started; all started ones have ended when this returns or raises.

        Raises:
            Exception: that of the first one to fail.
        """
        if len(acts) < 2:
            return [act() for act in acts]
        futures: list[Future[T]] = []
        try:
            futures.extend(self._requests.submit(act) for act in acts)
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = [one for one in done if one.exception() is not None]
        finally:
            for future in futures:
                future.cancel()
            wait(futures)
        return [future.result() for future in (*failed, *futures)]


def _secrets(headers: Mapping[str, Any]) -> set[str]:
    """The secrets in a request's headers: session token, access key, signature."""
    found = {
        name.lower(): value.decode("latin-1") if isinstance(value, bytes) else str(value)
        for name, value in headers.items()
    }
    authorization = found.get("authorization", "")
    key = authorization.partition("Credential=")[2].partition("/")[0]
    signature = authorization.partition("Signature=")[2]
    return {key, signature, authorization, found.get("x-amz-security-token", "")} - {""}


def _answered(failure: BaseException, expected: Collection[str]) -> bool:
    return isinstance(failure, boto.ClientError) and code_of(failure) in expected


class Requests:
    """The requests of a handle. Thread-safe.

    Raises:
        Determinate: the profile or credentials do not exist, or boto3 rejects an option.
    """

    def __init__(self, place: Place) -> None:
        self.place = place
        self.sent = RequestCounts()
        self._closed = False
        self._calling = threading.local()
        self._start()
        self._client_of_process()
        _handles.add(self)

    def _start(self) -> None:
        """The initial state, which also a forked child begins with."""
        self._lock = threading.Lock()
        self._client: S3Client | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._free = threading.BoundedSemaphore(self.place.options.concurrency)

    def forked(self) -> None:
        """Start anew in a forked child, leaving connections and threads to the parent. Counts continue from the
        parent's.
        """
        self.sent.forked()
        self._start()

    def once(self, call: Call, request: Callable[[S3Client], T]) -> T:
        """The result of one try of ``request(client)``, once a slot is free; its failure as it is.

        Raises:
            Late: no slot became free in time.
        """
        call.check()
        if not self._free.acquire(timeout=call.remaining()):
            raise Late(
                f"{self.place.options.concurrency} other requests were under way all the time"
            )
        try:
            client = self._client_of_process()
            self._calling.call = call
            return request(client)
        finally:
            self._calling.call = None
            self._free.release()

    def _client_of_process(self) -> S3Client:
        with self._lock:
            if self._closed:
                raise self.closed_error()
            if self._client is None:
                self._client = self._connect()
            return self._client

    def closed_error(self) -> Determinate:
        """The error for an operation on a closed handle."""
        return Determinate(f"S3 {self.place.url}: the handle is closed")

    def _connect(self) -> S3Client:
        options = self.place.options
        client: S3Client | None = None
        try:
            session = _session(options.profile, options.region)
            if session.get_credentials() is None:
                raise boto.NoCredentialsError
            client = self._made(session, secure=not (options.endpoint or "").startswith("http:"))
            if client.meta.endpoint_url.startswith("http:"):  # so say AWS_ENDPOINT_URL or ~/.aws
                client = self._made(session, secure=False)
        except (boto.BotoCoreError, ValueError) as failure:
            verdict = judge(failure, self.place.bucket)
            failed = error("open it", "", self.place.url, verdict, happened=False, tries=1)
        if client is None:
            raise failed
        keep_deadlines(client, self._time_left)
        client.meta.events.register_last("before-call.s3", _expect_nothing)
        client.meta.events.register_last("before-send.s3", self._before_send)
        if options.checksums == "md5":
            client.meta.events.register_first("before-sign.s3.DeleteObjects", _sign_md5)
        return client

    def _made(self, session: boto3.Session, *, secure: bool) -> S3Client:
        options = self.place.options
        settings: dict[str, Any] = {"addressing_style": options.addressing}
        if secure:
            # TLS and the checksum protect the body; a signed SHA-256 of it would be a second pass.
            settings["payload_signing_enabled"] = False
        config = Config(
            connect_timeout=options.connect_timeout,
            read_timeout=options.read_timeout,
            max_pool_connections=options.concurrency,
            retries={"total_max_attempts": 1, "mode": "standard"},
            # We send checksums in a header; botocore's own would be in a trailer, which not all servers support.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3=settings,  # type: ignore[arg-type]
        )
        region = session.region_name or "us-east-1"
        return session.client(
            "s3", endpoint_url=options.endpoint, region_name=region, config=config
        )

    def _before_send(self, request: Any, event_name: str, **_: object) -> None:
        """Count a request, and refuse to send it when no time is left."""
        operation = event_name.rpartition(".")[2]
        self.sent.count(operation)
        REQUESTS.count(operation)
        call = getattr(self._calling, "call", None)
        if call is None:
            return
        call.check()
        call.signed(request.headers)
        if isinstance(request.body, io.BytesIO):
            request.body = _Blocks(request.body, call)

    def _time_left(self) -> float | None:
        call: Call | None = getattr(self._calling, "call", None)
        return None if call is None else call.remaining()

    def submit(self, act: Callable[[], T]) -> Future[T]:
        """Run ``act`` on one of the handle's threads, which the first call starts.

        Raises:
            Determinate: the handle was closed.
        """
        with self._lock:
            if self._closed:
                raise self.closed_error()
            if self._pool is None:
                workers = min(_SIDE_BY_SIDE, self.place.options.concurrency)
                self._pool = ThreadPoolExecutor(workers, thread_name_prefix="mzsql-s3")
            return self._pool.submit(act)

    def close(self) -> None:
        """Take no more requests, after parts and ranges in progress. Idempotent."""
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
            pool, self._pool = self._pool, None
        if pool is not None:
            # Not cancelled: pending ones end at once without a client, whereas cancelled ones would leave their waiters
            # waiting.
            pool.shutdown(wait=True)
        if client is not None:
            client.close()


_loader = functools.cache(create_loader)
"""botocore's loader of S3's description, cached per process: loading is most of the cost of opening a handle."""


def _session(profile: str | None, region: str | None) -> boto3.Session:
    core = BotocoreSession(profile=profile)
    core.register_component("data_loader", _loader())
    session = boto3.Session(botocore_session=core, region_name=region)
    # Each session adds the same search path again.
    _loader().search_paths[:] = dict.fromkeys(_loader().search_paths)
    return session


class _Blocks:
    """A body sent in blocks, as long as its operation has time."""

    def __init__(self, body: io.BytesIO, call: Call) -> None:
        self._body = body
        self._call = call

    def __iter__(self) -> Iterator[bytes]:
        while block := self._body.read(_SEND_BYTES):
            self._call.check()
            yield block

    def seek(self, offset: int) -> None:
        """Start over, where botocore follows a redirect to another region."""
        self._body.seek(offset)


def _expect_nothing(params: Any, **_: object) -> None:
    """Send a short body with the headers, instead of waiting a round trip for ``100 Continue``."""
    body = params.get("body")
    if isinstance(body, io.BytesIO) and body.seek(0, io.SEEK_END) <= _SHORT_BYTES:
        params["headers"].pop("Expect", None)
    if isinstance(body, io.BytesIO):
        body.seek(0)


def _sign_md5(request: Any, **_: object) -> None:
    """Replace the checksum by Content-MD5, for servers without CRC32."""
    body = request.data if isinstance(request.data, bytes) else bytes(request.body)
    for name in list(request.headers):
        if name.lower().startswith(("x-amz-checksum-", "x-amz-sdk-checksum")):
            del request.headers[name]
    request.headers["Content-MD5"] = content_md5(body)


def content_md5(body: bytes) -> str:
    """The value of the Content-MD5 header."""
    return base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode()


def content_crc32(body: bytes) -> str:
    """The value of the x-amz-checksum-crc32 header."""
    return base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode()


_handles: weakref.WeakSet[Requests] = weakref.WeakSet()


def _in_child() -> None:
    REQUESTS.forked()
    for handle in list(_handles):
        handle.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
