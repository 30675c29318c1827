"""The client: opens shards, and ends them.

Promise: one client per process and location shares each shard's state among all its handles
(`mzsql.persist.opened`), does the shards' maintenance, and renews their leases (`mzsql.persist.background_work`).
`mzsql.persist.inspector` has what it reports about them.
"""

from __future__ import annotations

import logging
import random
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa
from prometheus_client import CollectorRegistry

from mzsql.location import (
    Blob,
    Consensus,
    UsageError,
    open_blob,
    open_consensus,
    shown_url,
)
from mzsql.persist.ages import Ages
from mzsql.persist.arguments import check_shard_id, check_since, check_text
from mzsql.persist.background_work import BackgroundWork
from mzsql.persist.batch import KeySpec
from mzsql.persist.cache import DIRECTORY_BYTES, MEMORY_BYTES, BlobCache, CachedBlob
from mzsql.persist.checked import checked
from mzsql.persist.clock import Clock, Deadline, SystemClock
from mzsql.persist.columns import check_schema, encode_schema
from mzsql.persist.commands import Finalize, RegisterCritical, RegisterReader, Retire, Sweep
from mzsql.persist.context import Context
from mzsql.persist.critical import CriticalReader
from mzsql.persist.errors import CorruptPart, Holder, MissingPart
from mzsql.persist.handles import Handle
from mzsql.persist.inspector import Inspector
from mzsql.persist.leaks import DAY_MS, Leak, find_leaks
from mzsql.persist.machine import Shard
from mzsql.persist.metrics import Meter, metered, metrics_of, scheme_of
from mzsql.persist.opened import Opened, OpenShards
from mzsql.persist.read import ReadHandle
from mzsql.persist.settings import Settings
from mzsql.persist.shard_maintenance import Report, maintain
from mzsql.persist.state import LeasedReader, ShardState
from mzsql.persist.versions import newer, release
from mzsql.persist.watch import Watch
from mzsql.persist.write import WriteHandle
from mzsql.repr.errors import SqlError
from mzsql.repr.frontier import Timestamp
from mzsql.repr.version import VERSION
from mzsql.threads import Supervisor

_log = logging.getLogger(__name__)

_CLOSE_SECONDS = 5.0


@checked
class PersistClient(Inspector):
    """All shards of one persist location, for one process. Thread-safe.

    Args:
        blob: stores batches.
        consensus: stores states.
        clock: the machine's by default.
        rng: makes identifiers; the system's by default.
        settings: bounds and intervals.
        background: run maintenance and lease renewal on threads of the client, instead of inside the calls that make
            them due.
        blob_url: the URL of ``blob``, which snapshot splits tell other processes to open.
        consensus_url: the URL of ``consensus``; metrics are labelled with the scheme of each URL.
        registry: where metrics are registered; prometheus_client's default registry by default.
        version: the program's version, which is recorded in the shards it changes (`mzsql.persist.versions`).
        takes_over: record that version from now on, rather than from `take_over` on.
        cache: keeps what was read of ``blob``, which is then not read again.
        supervisor: runs the client's threads, and those of its users; one of its own by default.
    """

    def __init__(
        self,
        blob: Blob,
        consensus: Consensus,
        *,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        settings: Settings | None = None,
        background: bool = True,
        blob_url: str | None = None,
        consensus_url: str | None = None,
        registry: CollectorRegistry | None = None,
        version: str = VERSION,
        takes_over: bool = True,
        cache: BlobCache | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        self.blob = blob
        self.consensus = consensus
        self._owns_backends = False
        clock = clock or SystemClock()
        self.supervisor = supervisor or Supervisor(clock=clock, rng=rng, registry=registry)
        meter = Meter(metrics_of(registry), clock)
        measured = meter.blob(blob, scheme_of(blob_url, blob))
        self.cache = cache
        if cache is not None and cache.observe is None:
            cache.observe = meter.cached
        context = Context(
            blob=measured if cache is None else CachedBlob(measured, cache),
            consensus=meter.consensus(consensus, scheme_of(consensus_url, consensus)),
            clock=clock,
            rng=rng or random.SystemRandom(),
            settings=settings or Settings(),
            blob_url=blob_url,
            threads=background,
            meter=meter,
            version=version,
            supervisor=self.supervisor,
            places=tuple(shown_url(url) for url in (blob_url, consensus_url) if url is not None),
            keeps_leases=background,
            watch=Watch(clock),
            written=Ages(clock),
            unnamed=Ages(clock),
        )
        if not takes_over:
            context.takes_over.clear()
        super().__init__(context, OpenShards(context.settings.open_shards))
        self._made_as = version
        self._lock = threading.Lock()
        self._writers: weakref.WeakValueDictionary[str, WriteHandle] = weakref.WeakValueDictionary()
        self._background_work = BackgroundWork(context, self._shards)
        if background:
            self._background_work.start()

    @classmethod
    def open(
        cls,
        *,
        blob: str,
        consensus: str,
        settings: Settings | None = None,
        background: bool = True,
        registry: CollectorRegistry | None = None,
        cache: str | Path | None = None,
        cache_bytes: int = DIRECTORY_BYTES,
        cache_memory_bytes: int = MEMORY_BYTES,
    ) -> PersistClient:
        """Open a client of the backends at two URLs; the client closes them.

        Args:
            blob: stores batches.
            consensus: stores states.
            settings: bounds and intervals.
            background: run maintenance and lease renewal on threads of the client.
            registry: where metrics are registered.
            cache: a directory in which to keep what was read of ``blob``, for this and other processes
                (`mzsql.persist.cache`).
            cache_bytes: about the most bytes kept in that directory.
            cache_memory_bytes: the most of those bytes kept in this process's memory as well.

        Raises:
            UnknownScheme, InvalidUrl: no plugin serves a URL.
        """
        with ExitStack() as opened:
            opened_blob = open_blob(blob)
            opened.callback(opened_blob.close)
            opened_consensus = open_consensus(consensus)
            opened.callback(opened_consensus.close)
            client = cls(
                opened_blob,
                opened_consensus,
                settings=settings,
                background=background,
                blob_url=blob,
                consensus_url=consensus,
                registry=registry,
                cache=None
                if cache is None
                else BlobCache(
                    cache,
                    directory_bytes=cache_bytes,
                    memory_bytes=cache_memory_bytes,
                    namespace=blob,
                ),
            )
            client._owns_backends = True
            opened.pop_all()
        return client

    def take_over(self) -> None:
        """Record this client's version in what it changes from now on: older programs can then no longer use those
        shards.
        """
        self._context.takes_over.set()

    def make_as(self, version: str) -> None:
        """Until `take_over`, record ``version`` in new shards: the version of the program that this one runs beside.

        Raises:
            UsageError: it is not a version.
        """
        check_text(version, "a version", empty=False)
        try:
            release(version)
        except CorruptPart as failure:
            raise UsageError(failure.message) from None
        self._made_as = version

    def _version_made(self) -> str:
        """Return the version to record in a new shard."""
        ours = self._context.version
        beside = self._made_as
        return ours if self._context.takes_over.is_set() or not newer(ours, beside) else beside

    def new_shard_id(self) -> str:
        """Return a new shard id: "s" and a UUID."""
        return "s" + self._context.new_id()

    def open_shard(
        self,
        shard_id: str,
        schema: pa.Schema,
        *,
        key: KeySpec | None = None,
        purpose: str = "",
        since: Timestamp = 0,
        timeout: float | None = None,
    ) -> tuple[WriteHandle, ReadHandle]:
        """Open a writer and a reader of a shard, which is made, with upper 0, if it does not exist.

        Args:
            shard_id: "s" and a UUID.
            schema: the columns of a row, without time and diff.
            key: the layout of a keyed shard.
            purpose: what the handles are for, shown to people who inspect the shard.
            since: the since of a new shard: it is never read before that time.
            timeout: seconds the call may take.

        Raises:
            SchemaMismatch: the shard has another schema or key, or the schema cannot be stored.
            NewerVersion: a newer version wrote the shard.
        """
        reader = self.open_reader(
            shard_id, schema, key=key, purpose=purpose, since=since, timeout=timeout
        )
        return self.open_writer(shard_id, schema, key=key, purpose=purpose), reader

    @metered("open_writer")
    def open_writer(
        self,
        shard_id: str,
        schema: pa.Schema | None = None,
        *,
        key: KeySpec | None = None,
        purpose: str = "",
        timeout: float | None = None,
    ) -> WriteHandle:
        """Open a writer, which is registered in Consensus only when it writes. Without ``schema`` the shard must exist.

        Raises:
            SchemaMismatch, NewerVersion: as `open_shard`.
        """
        check_text(purpose, "a purpose")
        opened = self._open(shard_id, schema, key, timeout)
        writer = WriteHandle(opened, "w" + self._context.new_id(), purpose)
        with self._lock:
            self._writers[writer.writer_id] = writer
        return writer

    @metered("open_reader")
    def open_reader(
        self,
        shard_id: str,
        schema: pa.Schema | None = None,
        *,
        key: KeySpec | None = None,
        purpose: str = "",
        since: Timestamp = 0,
        timeout: float | None = None,
    ) -> ReadHandle:
        """Open a leased reader at the shard's since. Without ``schema`` the shard must exist.

        If the shard is made for it, one write makes the shard and registers the reader.

        Raises:
            SchemaMismatch, NewerVersion: as `open_shard`.
            ShardFinalized: the shard has ended.
        """
        reader_id = "r" + self._context.new_id()
        check_text(purpose, "a purpose")
        check_since(since)
        command = RegisterReader(reader_id, self._context.settings.reader_lease_ms, purpose)
        # Before the registration: so the lease seems to run out here earlier than in other processes, never later.
        asked_at = self._context.clock.monotonic()
        opened = self._open(shard_id, schema, key, timeout, command, since)
        registered = opened.shard.state.readers.get(reader_id)
        if registered is None:
            asked_at = self._context.clock.monotonic()
            registered = opened.shard.apply(command, opened.deadline(timeout))
        return ReadHandle(opened, reader_id, registered, asked_at)

    @metered("open_critical_reader")
    def open_critical_reader(
        self,
        shard_id: str,
        reader_id: str,
        *,
        token: str | None = None,
        expected_token: str | None = None,
        purpose: str = "",
        timeout: float | None = None,
    ) -> CriticalReader:
        """Open the critical hold named ``reader_id``: made at the shard's since if it does not exist, else taken over.

        Args:
            shard_id: a shard that exists.
            reader_id: the hold's durable name.
            token: identifies its owner from now on; a new one by default. Callers with the same token share the
                hold.
            expected_token: take it over only from the owner of this token; if several try, one succeeds.
            purpose: what it is for, shown to people who inspect the shard.
            timeout: seconds the call may take.

        Raises:
            Fenced: the hold belongs to another owner than that of ``expected_token``.
            MissingPart: there is no such shard.
            ShardFinalized: the shard has ended, or is about to.
        """
        check_text(reader_id, "a critical reader's name", empty=False)
        check_text(purpose, "a purpose")
        if token is not None:
            check_text(token, "a token", empty=False)
        opened = self._open(shard_id, None, None, timeout)
        command = RegisterCritical(
            reader_id,
            self._context.new_id() if token is None else token,
            purpose,
            expected_token,
        )
        hold = opened.shard.apply(command, opened.deadline(timeout))
        return CriticalReader(opened, reader_id, hold)

    def _open(
        self,
        shard_id: str,
        schema: pa.Schema | None,
        key: KeySpec | None,
        timeout: float | None,
        reader: RegisterReader | None = None,
        since: Timestamp = 0,
    ) -> Opened:
        """Return the shard as opened here, made if it does not exist (with the reader, if one is given)."""
        check_shard_id(shard_id)
        if schema is not None:
            schema = check_schema(schema, key)
        with self._lock:
            self._check_open()
        opened = self._shards.use(shard_id)
        if opened is None:
            opened = self._make(shard_id, schema, key, timeout, reader, since)
        opened.check(schema, key)
        return opened

    def _make(
        self,
        shard_id: str,
        schema: pa.Schema | None,
        key: KeySpec | None,
        timeout: float | None,
        reader: RegisterReader | None,
        since: Timestamp,
    ) -> Opened:
        context = self._context
        deadline = context.deadline(timeout)
        shard = Shard(shard_id, context)
        if schema is None:
            if shard.fetch(deadline) is None:
                raise MissingPart(f"shard {shard_id} does not exist in this Consensus store")
        else:
            encoded = encode_schema(schema)

            def initial() -> ShardState:
                now = context.clock.now_ms()
                readers = {}
                if reader is not None:
                    leased = LeasedReader(since, 0, now, reader.lease_ms, reader.purpose)
                    readers = {reader.reader_id: leased}
                return ShardState(
                    shard_id=shard_id,
                    seqno=0,
                    walltime_ms=now,
                    schema=encoded,
                    key=key,
                    since=since,
                    readers=readers,
                    applier_version=self._version_made(),
                )

            shard.initialize(initial, deadline)
        return self._shards.add(Opened(shard, context, self._background_work.changed))

    def find_leaks(
        self,
        *,
        older_than_ms: int = DAY_MS,
        shard_ids: Sequence[str] | None = None,
        protected: Callable[[], Collection[str]] | None = None,
        delete: bool = False,
        delete_of_no_shard: bool = False,
        timeout: float | None = None,
    ) -> Iterator[Leak]:
        """Yield objects and unfinished uploads that nothing refers to; see `mzsql.persist.leaks.find_leaks`."""
        self._check_open()
        return find_leaks(
            self._context,
            older_than_ms=older_than_ms,
            shard_ids=shard_ids,
            protected=protected,
            delete=delete,
            delete_of_no_shard=delete_of_no_shard,
            timeout=timeout,
        )

    @property
    def maintains(self) -> bool:
        """Whether this process maintains what it writes, by `Settings.maintenance`."""
        return self._context.settings.maintenance == "in process"

    @metered("maintain")
    def maintain(
        self,
        shard_id: str,
        *,
        full: bool = False,
        all_due: bool = True,
        beside: bool = False,
        timeout: float | None = None,
    ) -> Report:
        """Compact the shard, write a rollup and collect garbage as due, in this thread; if it has ended, delete its
        remains.

        Args:
            shard_id: a shard that exists.
            full: merge all its batches into one, whatever their sizes.
            all_due: collect all garbage that can be collected; otherwise only if there is enough to be worth a
                rollup, as in the background.
            beside: merge all batches on the client's thread of maintenance, where it has one, and return at once, with an
                empty report; what fails there is logged.
            timeout: seconds the call may take.
        """
        opened = self._open(shard_id, None, None, timeout)
        if beside:
            self._background_work.merge_all(opened, opened.deadline(timeout))
            return Report()
        report = maintain(opened, self._context.deadline(timeout), full=full, all_due=all_due)
        if opened.shard.state.finalized and not opened.readers:
            self._shards.forget(opened)
        return report

    @metered("finalize")
    def finalize(self, shard_id: str, *, timeout: float | None = None) -> None:
        """End a shard: both frontiers become empty, its objects are deleted, and a tombstone stays. Idempotent.

        Readers that are open in this client end with it. Nothing is taken from other readers.

        Raises:
            ShardHeld: critical readers, or readers of other processes, hold the shard; says which. Nothing was
                changed.
        """
        opened = self._open(shard_id, None, None, timeout)
        deadline = self._context.deadline(timeout)
        opened.shard.apply(Finalize(opened.registered_readers()), deadline)
        self._clear_away(opened, deadline)

    @metered("retire")
    def retire(self, shard_id: str, *, timeout: float | None = None) -> tuple[Holder, ...]:
        """End a shard as soon as no reader holds it; until then it takes no new ones. Idempotent.

        The process that gives up the last hold, or first finds that the last reader's lease has run out, ends it.
        Its objects are then deleted by the next maintenance, or by another call of this.

        Returns:
            The holders: critical readers, and leased readers of this process and others. Empty: the shard has ended.
        """
        opened = self._open(shard_id, None, None, timeout)
        deadline = self._context.deadline(timeout)
        dropped = opened.registered_readers(dropped=True)
        held: tuple[Holder, ...] = opened.shard.apply(Retire(dropped), deadline)
        if not held:
            self._clear_away(opened, deadline)
        return held

    @metered("sweep")
    def sweep(self, shard_id: str, *, timeout: float | None = None) -> None:
        """Expire the handles of the shard whose leases this process has seen run out."""
        opened = self._open(shard_id, None, None, timeout)
        opened.shard.apply(Sweep(), self._context.deadline(timeout))

    def _clear_away(self, opened: Opened, deadline: Deadline) -> None:
        """Delete what is left of a shard that has ended, and drop it from the open shards."""
        maintain(opened, deadline, all_due=True)
        self._shards.forget(opened)

    def close(self) -> None:
        """Expire this client's handles, stop its threads, and close the backends it opened. Idempotent.

        A backend error while handles are expired is logged: their leases run out by themselves. However many handles
        there are, a backend that does not answer delays the close by some seconds only.
        """
        with self._lock:
            if self._closed:
                return
            self._closed = True
            open_shards = self._shards.all()
            readers = [reader for opened in open_shards for reader in opened.readers]
            writers: dict[str, Handle] = {
                w.writer_id: w for opened in open_shards for w in opened.writers
            }
            writers.update(self._writers)
            handles: list[Handle] = [*readers, *writers.values()]
        # First, so that calls in progress stop retrying; then interrupt merges, which would keep their thread for
        # long.
        self._context.closing.set()
        for opened in open_shards:
            opened.interrupt()
        self._background_work.stop(_CLOSE_SECONDS)
        # One deadline for all handles together.
        deadline = self._context.deadline(_CLOSE_SECONDS)
        for handle in handles:
            try:
                handle.expire(timeout=deadline.remaining())
            except SqlError as failure:
                _log.warning("shard %s: a handle was left to expire: %s", handle.shard_id, failure)
        if self._owns_backends:
            self.blob.close()
            self.consensus.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
