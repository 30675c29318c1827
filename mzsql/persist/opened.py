"""What the handles of one shard share within a client, and which shards a client has open."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from mzsql.persist.arguments import refuse
from mzsql.persist.batch import Batch, KeySpec
from mzsql.persist.clock import Deadline
from mzsql.persist.columns import decode_schema
from mzsql.persist.context import Context
from mzsql.persist.errors import ForeignBlob, InvalidBounds, SchemaMismatch
from mzsql.persist.fetch import PartReader
from mzsql.persist.handles import Handle, Leased, Reader, Writer
from mzsql.persist.machine import Shard


class _Handles:
    """The handles of a shard that are open here and referenced."""

    def __init__(self, *, keeps_leases: bool) -> None:
        self._keeps_leases = keeps_leases
        self.lock = threading.Lock()
        # Keyed by id rather than sets of handles, whose order would differ between a simulation's replays.
        self.readers: weakref.WeakValueDictionary[str, Reader] = weakref.WeakValueDictionary()
        self.writers: weakref.WeakValueDictionary[str, Writer] = weakref.WeakValueDictionary()

    def ids(self) -> list[str]:
        """Return the ids of those whose leases are kept."""
        if not self._keeps_leases:
            return []
        with self.lock:
            return [*self.readers.keys(), *self.writers.keys()]


class Opened:
    """A shard as a client has it open. Thread-safe.

    Args:
        shard: its state machine, which has a state.
        context: the client's.
        changed: called after each change made here, with the deadline of the call that made it, so that maintenance
            is done when due.
    """

    def __init__(
        self, shard: Shard, context: Context, changed: Callable[[Opened, Deadline], None]
    ) -> None:
        self.shard = shard
        self.context = context
        self.changed = changed
        self.schema: pa.Schema = decode_schema(shard.state.schema)
        self.key: KeySpec | None = shard.state.key
        self.parts = PartReader(context, shard.shard_id, self.schema)
        self.maintenance_lock = threading.Lock()
        self._handles = _Handles(keeps_leases=context.keeps_leases)
        # Every reader registered here that may still be in the state, even if its handle was dropped without being
        # closed.
        self._registered: set[str] = set()
        shard.own = self._handles.ids
        self.broken: set[int] = set()
        """Batches that cannot be merged, as something in them is missing or corrupt; known until the process ends."""
        self.merge_from = 0
        """No merges are tried before this seqno, as one ran out of resources."""
        self.merges_all = False
        """Whether the next maintenance is to merge all batches into one."""
        self._seen_due: tuple[int, int] | None = None
        self._doubtful: dict[str, int] = {}
        self._interrupts: list[Callable[[], None]] = []
        self._interrupts_lock = threading.Lock()

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self.shard.shard_id

    def learn(self, batch: Batch) -> None:
        """Add ``batch`` to what is known ahead of the shard: all of its updates of those times.

        Raises:
            ForeignBlob: the batch is of another shard.
            InvalidBounds: it has no upper, or it refers to objects in Blob, which nothing would protect from
                deletion.
        """
        if not isinstance(batch, Batch):
            refuse("batch", "a Batch", batch)
        if batch.shard_id != self.shard_id:
            raise ForeignBlob(
                f"the batch belongs to shard {batch.shard_id}, not to {self.shard_id}"
            )
        if batch.upper is None or batch.blob_keys():
            raise InvalidBounds(
                f"shard {batch.shard_id}: only a batch with an upper and without objects can be known ahead of the shard"
            )
        self.shard.learn(batch)

    @property
    def readers(self) -> list[Reader]:
        """The readers that are open and referenced."""
        with self._handles.lock:
            return list(self._handles.readers.values())

    def add_reader(self, reader: Reader) -> None:
        """Have a reader's lease renewed as long as anything references it."""
        with self._handles.lock:
            self._handles.readers[reader.reader_id] = reader
            # Forget readers that have left the state.
            self._registered.intersection_update(self.shard.state.readers)
            self._registered.add(reader.reader_id)

    def registered_readers(self, *, dropped: bool = False) -> tuple[str, ...]:
        """Return the ids of readers registered here; with ``dropped`` only of those that nothing references any more,
        so that none reads.
        """
        with self._handles.lock:
            left = sorted(self._registered.intersection(self.shard.state.readers))
            return tuple(i for i in left if not dropped or i not in self._handles.readers)

    def discard_reader(self, reader: Reader) -> None:
        """Stop renewing a reader's lease."""
        with self._handles.lock:
            self._handles.readers.pop(reader.reader_id, None)

    @property
    def writers(self) -> list[Writer]:
        """The writers that are open and referenced."""
        with self._handles.lock:
            return list(self._handles.writers.values())

    def add_writer(self, writer: Writer) -> None:
        """Have a writer's lease renewed as long as anything references it."""
        with self._handles.lock:
            self._handles.writers[writer.writer_id] = writer

    def discard_writer(self, writer: Writer) -> None:
        """Stop renewing a writer's lease."""
        with self._handles.lock:
            self._handles.writers.pop(writer.writer_id, None)

    def discard(self, handle: Handle) -> None:
        """Stop renewing a handle's lease."""
        with self._handles.lock:
            for known in (self._handles.readers, self._handles.writers):
                for i in [i for i, one in known.items() if one is handle]:
                    del known[i]

    def renewable(self, *, besides: str) -> list[Leased]:
        """Return the other handles here whose leases a renewal of ``besides`` should renew with its own, at no extra
        cost.
        """
        if not self.context.keeps_leases:
            return []
        leases: list[Leased] = [reader.lease for reader in self.readers]
        leases += self.writers
        return [lease for lease in leases if lease.handle_id != besides and lease.renewable()]

    def changes_since_seen(self, completed_by: int, seqno: int) -> int:
        """Return how many changes of the shard ago the merge that batch ``completed_by`` made due was first seen here."""
        if self._seen_due is None or self._seen_due[0] != completed_by:
            self._seen_due = (completed_by, seqno)
        return seqno - self._seen_due[1]

    def doubt(self, keys: Sequence[str]) -> None:
        """Remember objects named by a change that may or may not have been committed, and so may not be deleted yet."""
        last = self.shard.state.seqno + 1
        self._doubtful.update(dict.fromkeys(keys, last))

    def resolve_doubts(self, seqno: int, named: Callable[[], set[str]]) -> list[str]:
        """Return the doubtful objects that no state will ever name, given that the state at ``seqno`` is known; forget
        all that are decided.

        A change to a state at or before ``seqno`` either named them, or lost its race for good.
        """
        # Work on a copy, because writers add doubts while maintenance resolves them.
        decided = [key for key, last in self._doubtful.copy().items() if last <= seqno]
        if not decided:
            return []
        for key in decided:
            self._doubtful.pop(key, None)
        live = named()
        return [key for key in decided if key not in live]

    @contextlib.contextmanager
    def interrupting(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """While the block runs, `interrupt` calls ``interrupt()``."""
        with self._interrupts_lock:
            self._interrupts.append(interrupt)
        try:
            yield
        finally:
            with self._interrupts_lock:
                self._interrupts.remove(interrupt)

    def interrupt(self) -> None:
        """Have long-running work on the shard end soon."""
        with self._interrupts_lock:
            for interrupt in self._interrupts:
                interrupt()

    def deadline(self, timeout: float | None) -> Deadline:
        """Return the end of a call that starts now."""
        return self.context.deadline(timeout)

    def check(self, schema: pa.Schema | None, key: KeySpec | None) -> None:
        """Compare the shard with a program's definition of it.

        Raises:
            SchemaMismatch: they differ.
        """
        if schema is not None and not self.schema.equals(schema):
            raise SchemaMismatch(
                f"shard {self.shard_id} has another schema than the one it is opened with",
                detail=f"The shard has ({_shown(self.schema)}), the program has ({_shown(schema)}).",
            )
        if schema is not None and key != self.key:
            raise SchemaMismatch(
                f"shard {self.shard_id} has another key than the one it is opened with",
                detail=f"The shard has {self.key or 'no key'}, the program has {key or 'no key'}.",
            )


def _shown(schema: pa.Schema) -> str:
    return ", ".join(f"{f.name} {f.type}{'' if f.nullable else ' not null'}" for f in schema)


class OpenShards:
    """The shards of a client by id. Thread-safe.

    A shard with a handle stays open; of the others, the most recently used do.

    Args:
        latest: how many of the most recently used to keep, at least 1.
    """

    def __init__(self, latest: int) -> None:
        self._latest = max(1, latest)
        self._lock = threading.Lock()
        self._opened: weakref.WeakValueDictionary[str, Opened] = weakref.WeakValueDictionary()
        self._recent: OrderedDict[str, Opened] = OrderedDict()

    def __len__(self) -> int:
        return len(self._opened)

    def __contains__(self, shard_id: str) -> bool:
        return shard_id in self._opened

    def all(self) -> list[Opened]:
        """Return every open shard."""
        with self._lock:
            return list(self._opened.values())

    def get(self, shard_id: str) -> Opened | None:
        """Return the shard if it is open, without counting as a use."""
        with self._lock:
            return self._opened.get(shard_id)

    def use(self, shard_id: str) -> Opened | None:
        """Return the shard if it is open, and count it as the most recently used."""
        with self._lock:
            opened = self._opened.get(shard_id)
            if opened is not None:
                self._used(opened)
            return opened

    def add(self, made: Opened) -> Opened:
        """Return the open shard from now on: ``made``, or the one that another thread has added first."""
        with self._lock:
            opened = self._opened.setdefault(made.shard_id, made)
            self._used(opened)
            return opened

    def forget(self, opened: Opened) -> None:
        """Drop a shard that has ended; handles that still exist keep their own reference."""
        with self._lock:
            if self._opened.get(opened.shard_id) is opened:
                del self._opened[opened.shard_id]
                self._recent.pop(opened.shard_id, None)

    def _used(self, opened: Opened) -> None:
        """Count the shard as the most recently used. The caller holds the lock."""
        self._recent[opened.shard_id] = opened
        self._recent.move_to_end(opened.shard_id)
        while len(self._recent) > self._latest:
            self._recent.popitem(last=False)
