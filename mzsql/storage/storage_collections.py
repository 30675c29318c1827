"""All readable collections of an environment by global id: tables behind the log, materialized views and managed collections on shards.

Promise: a read at a time returns the contents at that time, whoever wrote and applied them. Waiting for a time has a timeout. Holds keep
a collection's `since` back. The leading process also keeps one on each collection that survives it (`own_holds`), at the earliest of all
holds asked for here and of the retention window: a restarted dataflow finds its inputs where it left them. Others' reads have leases.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from mzsql.persist import (
    Clock,
    CriticalReader,
    ExpiredHandle,
    Filters,
    KeyRange,
    PartRef,
    PersistClient,
    ReadHandle,
    ReadTimeout,
    ShardFinalized,
    ShardState,
    SystemClock,
)
from mzsql.repr.errors import Fenced, NotReadable, UndefinedTable
from mzsql.repr.frontier import Frontier, Timestamp, join, meet, show
from mzsql.repr.ids import GlobalId
from mzsql.storage.collection import ARRANGEMENT, TABLE, Collection, Hold, OpenCollection, looked_up
from mzsql.storage.ending import HOLD_ID
from mzsql.storage.export_log import ExportLog, Reach
from mzsql.storage.following import Followers
from mzsql.storage.recent import RecentUpdates
from mzsql.storage.tables import Tables, TableShard, empty_updates
from mzsql.storage.watching import Watchers

T = TypeVar("T")

#: How many dropped collections are remembered by name, for messages.
_REMEMBERED = 1_000


def _dropped(name: str) -> UndefinedTable:
    return UndefinedTable(f'query could not complete because relation "{name}" was dropped')


class Collections:
    """The collections of one environment, for one process; compute's `StorageReader`. Thread-safe."""

    def __init__(
        self,
        persist: PersistClient,
        tables: Tables,
        *,
        clock: Clock | None = None,
        exports: ExportLog | None = None,
    ) -> None:
        self._persist = persist
        self._exports = exports
        self.tables = tables
        self._lock = threading.RLock()
        self._metas: dict[GlobalId, Collection] = {}
        self._open: dict[GlobalId, OpenCollection] = {}
        # Holds on collections that are not open yet.
        self._unsettled: dict[GlobalId, set[Hold]] = {}
        # How many threads wait for each collection.
        self._awaited: Counter[GlobalId] = Counter()
        # Names of recently dropped collections, for errors of those that still use them.
        self._gone: dict[GlobalId, str] = {}
        self._recent = RecentUpdates()
        self._watchers = Watchers(tables.wal, persist.supervisor, clock or SystemClock())
        self._owns_holds = False
        self.followers = Followers(
            lambda gid: self._get(gid).reader, self._watchers.notify, persist.supervisor, self._log
        )

    # --- what there is ------------------------------------------------------------------------

    def register(self, collection: Collection) -> None:
        """Make a collection readable. Idempotent."""
        with self._lock:
            self._metas[collection.id] = collection

    def forget(self, gid: GlobalId) -> None:
        """Close a dropped collection and end its holds."""
        with self._lock:
            meta = self._metas.pop(gid, None)
            if meta is not None:
                self._gone[gid] = meta.name
                while len(self._gone) > _REMEMBERED:
                    del self._gone[next(iter(self._gone))]
            one = self._open.pop(gid, None)
            self._unsettled.pop(gid, None)
        self._recent.forget(gid)
        if one is None:
            return
        if one.critical is not None:
            # If another process has taken the hold over, it releases it; if the shard has ended there is no hold.
            with contextlib.suppress(Fenced, ExpiredHandle):
                one.critical.release()
        if one.table is not None:
            self.tables.forget(one.meta.shard)
        else:
            self._close_reader(one)

    def _close_reader(self, one: OpenCollection) -> None:
        log = self._log(one.meta.id, one.meta)
        if log is not None:
            log.detach(one.reader)
        one.reader.expire()

    def _log(self, gid: GlobalId, meta: Collection | None = None) -> ExportLog | None:
        """The export log, for a collection whose updates are in it; else None."""
        return self._exports if (meta or self.meta(gid)).exported else None

    def ids(self) -> list[GlobalId]:
        """Every registered collection."""
        with self._lock:
            return list(self._metas)

    def meta(self, gid: GlobalId) -> Collection:
        """What is known of a collection.

        Raises:
            UndefinedTable: it is not registered, or was dropped.
        """
        with self._lock:
            meta, gone = self._metas.get(gid), self._gone.get(gid)
        if meta is None and gone is not None:
            raise _dropped(gone)
        if meta is None:
            raise UndefinedTable(f"unknown catalog item '{gid}'")
        return meta

    def _get(self, gid: GlobalId) -> OpenCollection:
        with self._lock:
            one = self._open.get(gid)
            if one is None:
                meta = self.meta(gid)
                if meta.kind == TABLE:
                    table = self.tables.open(meta.shard, meta.columns)
                    one = OpenCollection(meta, table, None)
                else:
                    one = OpenCollection(meta, None, self._open_reader(meta))
                if self._owns_holds:
                    self._take_hold(one)
                self._settle(one)
                self._open[gid] = one
            return one

    def _settle(self, one: OpenCollection) -> None:
        """Let holds begin where an opened collection does: others may have given up what a lost lease held. The caller holds the lock."""
        for hold in (*self._unsettled.pop(one.meta.id, ()), *one.holds):
            hold.settle(self._readable_from(one))
            one.holds.add(hold)

    @staticmethod
    def _readable_from(one: OpenCollection) -> Frontier:
        """The earliest time at which a new hold can begin."""
        held = one.reader.since if one.critical is None else one.critical.since
        return join(held, one.given_up)

    def _open_reader(self, meta: Collection) -> ReadHandle:
        # An arrangement's key layout is known to its replica only, so no schema is demanded.
        schema = None if meta.kind == ARRANGEMENT else meta.schema
        reader = self._persist.open_reader(meta.shard, schema, purpose=f"reads of {meta.name}")
        log = self._log(meta.id, meta)
        if log is not None:
            log.attach(reader)
        return reader

    def _fresh(self, gid: GlobalId) -> OpenCollection:
        """The collection, after replacing a reader whose lease has expired."""
        one = self._get(gid)
        with self._lock:
            if one.table is not None:
                one.table.reopen()
            else:
                log, expired = self._log(gid, one.meta), one.reader
                # The new one is attached to the log before the expired one is detached, so that nothing that the log tells falls between
                # them.
                one.replace_reader(self._open_reader(one.meta))
                if log is not None:
                    log.detach(expired)
            self._settle(one)
        return one

    def table(self, gid: GlobalId) -> TableShard:
        """The shard of a table, for writing."""
        one = self._get(gid)
        assert one.table is not None, f"{gid} is not a table"
        return one.table

    # --- frontiers ----------------------------------------------------------------------------

    def has_errors(self, gid: GlobalId) -> bool:
        """Whether the collection's shard has the column ``mz_error``."""
        return self.meta(gid).has_errors

    def upper(self, gid: GlobalId) -> Frontier:
        """The collection's upper, fetched; for a table that of the log."""
        if self.meta(gid).kind == TABLE:
            return self.tables.wal.follow().upper
        reader, log = self._get(gid).reader, self._log(gid)
        if log is not None:
            if reader.told_here:
                return reader.upper
            log.follow()
        return reader.fetch_upper()

    def seen_upper(self, gid: GlobalId) -> Frontier:
        """The collection's upper: as last seen, if this process is notified when it moves; else as `upper`."""
        told = self._watchers.told if self.meta(gid).kind == TABLE else self.followers.told(gid)
        return self.known_upper(gid) if told else self.upper(gid)

    def known_upper(self, gid: GlobalId) -> Frontier:
        """The collection's upper as last seen here, without a call to a backend."""
        if self.meta(gid).kind == TABLE:
            return self.tables.wal.state.upper
        return self._get(gid).reader.upper

    def estimated_rows(self, gid: GlobalId) -> int | None:
        """The number of updates in a collection as last seen here, which is about its number of rows; None if it is unknown."""
        with self._lock:
            if gid not in self._metas:
                return None
        upper = self.known_upper(gid)
        return sum(part.rows for part in self.parts(gid, upper - 1)) if upper else 0

    def since(self, gid: GlobalId) -> Frontier:
        """The earliest time at which the collection can be read now."""
        one = self._get(gid)
        return join(one.reader.since, one.meta.begins)

    def reaching(self) -> Reach | None:
        """`ExportLog.reaching`, where there is a log."""
        return None if self._exports is None else self._exports.reaching()

    def frontiers(
        self,
        gid: GlobalId,
        state_of: Callable[[str], ShardState | None] | None = None,
        reach: Reach | None = None,
    ) -> tuple[Frontier, Frontier]:
        """A collection's since and upper; not open here it is only inspected, without a lease.

        ``state_of`` gives the state of its shard, else that is fetched; ``reach`` is from `reaching`, else the log is fetched.
        """
        meta = self.meta(gid)
        if gid in self._open:
            return self.since(gid), self.upper(gid)
        state = (state_of or self._persist.inspect)(meta.shard)
        if state is None:
            return meta.begins, 0
        since, log = join(state.since, meta.begins), self._log(gid, meta)
        return since, state.upper if log is None else (reach or log.reach)(meta.shard, state.upper)

    def logged(self) -> frozenset[str]:
        """The shards of views of which the export log, fetched, has updates that may not be in them yet."""
        return frozenset() if self._exports is None else self._exports.shards()

    def wait_for_upper(self, gid: GlobalId, past: Timestamp, timeout: float) -> Frontier:
        """Wait until ``past`` is complete; return the upper then.

        Raises:
            NotReadable: it is not within ``timeout`` seconds; names the frontier and the time.
        """
        meta = self.meta(gid)
        if meta.kind == TABLE:
            upper: Frontier = self.tables.wal.wait_past(past, timeout).upper
        else:
            try:
                with self._waiting(gid):
                    try:
                        return self._await(self._get(gid), past, timeout)
                    except ExpiredHandle:
                        return self._await(self._fresh(gid), past, timeout)
            except ReadTimeout as late:
                upper = late.upper
        if upper is not None and upper <= past:
            raise NotReadable(
                f"{meta.name} is not readable at {past}: after {timeout:g} s its write frontier is {show(upper)}"
            )
        return upper

    @contextlib.contextmanager
    def _waiting(self, gid: GlobalId) -> Iterator[None]:
        """Let those who can advance a collection know that somebody waits for it."""
        with self._lock:
            self._awaited[gid] += 1
            first = self._awaited[gid] == 1
        try:
            if first and not self._get(gid).reader.told_here:
                self.notify()
            yield
        finally:
            with self._lock:
                self._awaited[gid] -= 1
                if not self._awaited[gid]:
                    del self._awaited[gid]

    def awaited(self) -> list[GlobalId]:
        """The collections that threads of this process wait for."""
        with self._lock:
            return list(self._awaited)

    def _await(self, one: OpenCollection, past: Timestamp, timeout: float) -> Frontier:
        log = self._log(one.meta.id, one.meta)
        if log is None:
            return one.reader.wait_for_upper(past, timeout=timeout)
        return log.wait(one.reader, past, timeout)

    # --- reads --------------------------------------------------------------------------------

    def _ready(self, gid: GlobalId, as_of: Timestamp) -> OpenCollection:
        one = self._get(gid)
        if one.table is not None:
            wal = self.tables.wal
            if wal.state.upper <= as_of and wal.follow().upper <= as_of:
                wal.advance_past(as_of)
            self.tables.ensure_known(one.table)
        return one

    def _reading(self, gid: GlobalId, as_of: Timestamp, read: Callable[[OpenCollection], T]) -> T:
        """The result of ``read`` on the collection, complete at ``as_of``; retried once if the reader's lease had expired."""
        meta = self.meta(gid)
        try:
            one = self._ready(gid, as_of)
            try:
                return read(one)
            except ExpiredHandle:
                return read(self._fresh(gid))
        except ShardFinalized:
            if meta.kind == ARRANGEMENT:
                raise
            raise _dropped(meta.name) from None

    def contents_at(self, gid: GlobalId, as_of: Timestamp) -> Timestamp | None:
        """A time at or before ``as_of`` at which the contents are the same; None if nothing was ever written.

        For a table it is the time of its last write as seen here, so that while nobody writes to it no backend is called.
        """
        return self._reading(gid, as_of, lambda one: self._same_at(one, as_of))

    def _same_at(self, one: OpenCollection, as_of: Timestamp) -> Timestamp | None:
        if one.table is None:
            return as_of
        return one.table.physical_as_of(as_of)

    def snapshot(
        self,
        gid: GlobalId,
        as_of: Timestamp,
        columns: Sequence[int] | None = None,
        *,
        filters: Filters | None = None,
    ) -> pa.Table:
        """The contents at ``as_of``, consolidated: c0 …, [mz_error], mz_time, mz_diff.

        Args:
            gid: the collection.
            as_of: the time, which must be complete.
            columns: positions of the wanted columns; all by default.
            filters: which rows are wanted, see `mzsql.persist.Filters`.
        """
        meta = self.meta(gid)
        names = None if columns is None else [f"c{i}" for i in columns]
        if names is not None and meta.has_errors:
            names.append("mz_error")

        def read(one: OpenCollection) -> pa.Table:
            if one.table is not None:
                return one.table.snapshot(as_of, names, filters=filters)
            return one.reader.snapshot_arrow(as_of, columns=names, filters=filters)

        return self._reading(gid, as_of, read)

    def snapshot_reader(
        self,
        gid: GlobalId,
        as_of: Timestamp,
        *,
        columns: Sequence[str] | None = None,
        consolidate: bool = True,
    ) -> pa.RecordBatchReader:
        """As `snapshot`, piece by piece in bounded memory, however large the collection is; consolidated if ``consolidate``.

        ``columns``, if given, are the names of wanted columns, in this order, before mz_time and mz_diff.
        """

        def read(one: OpenCollection) -> pa.RecordBatchReader:
            at = as_of if one.table is None else one.table.physical_as_of(as_of)
            if at is None:
                empty = empty_updates(one.meta.schema)
                wanted = one.meta.schema.names if columns is None else columns
                return empty.select([*wanted, "mz_time", "mz_diff"]).to_reader()
            return one.reader.snapshot_reader(at, columns=columns, consolidate=consolidate)

        return self._reading(gid, as_of, read)

    def lookup(
        self, gid: GlobalId, as_of: Timestamp, ranges: Sequence[KeyRange], *, rows: int, size: int
    ) -> pa.Table | None:
        """The contents of an arrangement at ``as_of`` in ranges of its first key column: c0 …, mz_error, mz_time, mz_diff.

        None if they are more than ``rows`` rows or ``size`` bytes; at most that and a row group are read into memory before that is
        known.
        """

        def read(one: OpenCollection) -> pa.Table | None:
            return looked_up(one.reader, as_of, ranges, rows=rows, size=size)

        return self._reading(gid, as_of, read)

    def updates(self, gid: GlobalId, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """All updates with ``lower <= mz_time < upper`` at their exact times."""
        if lower >= upper:
            return empty_updates(self.meta(gid).schema)
        known = self._recent.get(gid, lower, upper)
        if known is not None:
            return known

        found = self._reading(gid, upper - 1, lambda one: one.updates(lower, upper))
        self._recent.keep(gid, lower, upper, found)
        return found

    def small_updates(
        self, gid: GlobalId, lower: Timestamp, upper: Timestamp, *, rows: int, size: int
    ) -> tuple[pa.Table, int] | None:
        """As `updates`, with the bytes of their parts, if these hold at most ``rows`` rows and ``size`` bytes; None if they hold more."""
        found = self._reading(
            gid, upper - 1, lambda one: one.small_updates(lower, upper, rows, size)
        )
        if found is not None:
            self._recent.keep(gid, lower, upper, found[0])
        return found

    def parts(
        self, gid: GlobalId, as_of: Timestamp, *, filters: Filters | None = None
    ) -> Sequence[PartRef]:
        """The parts of the contents at ``as_of``, which must be complete; only those that may contain a row that ``filters`` allow."""

        def read(one: OpenCollection) -> Sequence[PartRef]:
            if one.table is not None:
                return one.table.parts(as_of, filters=filters)
            return one.reader.parts(as_of, filters=filters)

        return self._reading(gid, as_of, read)

    def parts_between(self, gid: GlobalId, lower: Timestamp, upper: Timestamp) -> Sequence[PartRef]:
        """The parts that may hold updates with ``lower <= time < upper``."""
        return self._reading(gid, upper - 1, lambda one: one.parts_between(lower, upper))

    # --- holds --------------------------------------------------------------------------------

    def hold(self, gid: GlobalId, since: Timestamp) -> Hold:
        """Hold the collection readable from ``since`` on, or from its present since where that is later.

        The leading process does not open the collection for that: it owns the hold that survives processes, so nobody else gives up
        history of a collection that is not open here. The hold is settled when the collection is opened, or when its since is asked for.
        """
        with self._lock:
            if self._owns_holds and gid not in self._open:
                self.meta(gid)
                hold = Hold(self, gid, since, settled=False)
                self._unsettled.setdefault(gid, set()).add(hold)
                return hold
        one = self._get(gid)
        with self._lock:
            hold = Hold(self, gid, join(since, self._readable_from(one)))
            one.holds.add(hold)
            return hold

    def settle_hold(self, gid: GlobalId) -> None:
        """Open the collection; called by `Hold.since`."""
        self._get(gid)

    def drop_hold(self, gid: GlobalId, hold: Hold) -> None:
        """End a hold; called by `Hold.release`."""
        with self._lock:
            one = self._open.get(gid)
            if one is not None:
                one.holds.discard(hold)
            unsettled = self._unsettled.get(gid)
            if unsettled is not None:
                unsettled.discard(hold)
                if not unsettled:
                    del self._unsettled[gid]

    def open_durable_hold(self, gid: GlobalId, name: str, purpose: str) -> CriticalReader:
        """Called by `DurableHold`: open the hold of a name, which survives processes and is shared by all who use the name."""
        return self._persist.open_critical_reader(
            self.meta(gid).shard, name, token=name, purpose=purpose
        )

    def kept(self, gid: GlobalId, until: Timestamp) -> Timestamp:
        """Called by `DurableHold`: ``until``, or the last complete time of the shard itself if that is earlier."""
        one = self._get(gid)
        self._catch_up(one)
        return one.kept(until)

    def own_holds(self) -> None:
        """Take over the holds that survive processes; the leader does this."""
        with self._lock:
            self._owns_holds = True
            for one in self._open.values():
                if one.critical is None:
                    self._take_hold(one)

    def _take_hold(self, one: OpenCollection) -> None:
        if one.meta.kind == ARRANGEMENT:
            return
        one.critical = self._persist.open_critical_reader(
            one.meta.shard, HOLD_ID, purpose="collections kept by the environment's leader"
        )

    def disown_holds(self) -> None:
        """Leave the holds that survive processes to the new leader."""
        with self._lock:
            self._owns_holds = False
            for one in self._open.values():
                one.critical = None

    def release_history(
        self, retain_from: Timestamp, of: Mapping[GlobalId, Timestamp] | None = None
    ) -> None:
        """Allow history before ``retain_from`` to be compacted, or before what ``of`` gives for a collection, unless a hold needs it."""
        retained = {} if of is None else of
        with self._lock:
            opened = list(self._open.values())
        for one in opened:
            self._catch_up(one)
            try:
                with self._lock:
                    since = retained.get(one.meta.id, retain_from)
                    target = meet(since, *(hold.since for hold in one.holds))
                    assert target is not None
                one.look(target)
                with self._lock:
                    target = one.kept(meet(target, *(hold.since for hold in one.holds)))
                    one.given_up = max(one.given_up, target)
                one.give_up(target)
            except ShardFinalized:
                continue  # it was dropped, and there is no history to give up
            except ExpiredHandle:
                with self._lock:
                    still_open = self._open.get(one.meta.id) is one
                # Not for a dropped collection, whose shard ends once its readers are done.
                if still_open:
                    with contextlib.suppress(ShardFinalized):
                        self._fresh(one.meta.id)

    def _catch_up(self, one: OpenCollection) -> None:
        """A table's shard must contain what the log has for it, because history is given up only as far as the shard itself goes."""
        if one.table is not None:
            with contextlib.suppress(ExpiredHandle):  # found again below
                self.tables.catch_up(one.table)

    # --- watching -----------------------------------------------------------------------------

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call ``callback`` whenever some collection's upper may have moved; returns a function that ends this."""
        return self._watchers.watch(callback)

    def notify(self) -> None:
        """Call the watchers; to be called after a commit of this process."""
        self._watchers.notify()

    def moved(self, gid: GlobalId) -> None:
        """A collection's upper has moved here, perhaps without a write to its shard: call the watchers if anybody follows it."""
        if self.followers.wanted(gid):
            self.notify()

    def close(self) -> None:
        """Stop following and close all handles. Holds that survive processes stay. Idempotent."""
        self._watchers.close()
        self.followers.close()
        if not self.tables.wal.notified:
            self.join()
        with self._lock:
            opened: Iterable[OpenCollection] = list(self._open.values())
            self._open.clear()
        for one in opened:
            if one.table is None:
                self._close_reader(one)
        self.tables.close()

    def join(self, timeout: float | None = None) -> None:
        """Wait for the threads that follow to end: they may be in a wait that ends only when Consensus is closed."""
        self._watchers.join(timeout)
        self.followers.join(timeout)
