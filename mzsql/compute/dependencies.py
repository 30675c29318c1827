"""The interfaces that compute needs from `storage` and `adapter`, and the settings of a replica.

Promise: the protocols are structural, so `storage` (which may not import this package) and `adapter` satisfy them
without inheriting. All calls block, may be made from any thread, and end within their timeout. `ComputeSettings` is
a frozen value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa

from mzsql.persist import Batch, PartRef, WriteHandle
from mzsql.render.nodes.naming import ARRANGEMENT_FORMAT
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId


class ReadHold(Protocol):
    """Keeps a collection readable at its `since` and at all later times, until it is downgraded or released."""

    @property
    def since(self) -> Frontier:
        """The earliest time that the hold keeps readable; None once it holds nothing."""

    def downgrade(self, since: Frontier) -> None:
        """Allow times before `since` to be compacted. A `since` earlier than the present one changes nothing."""

    def release(self) -> None:
        """Hold nothing any more. Idempotent."""


class KnowsErrors(Protocol):
    """Tells which collections can contain error rows."""

    def has_errors(self, gid: GlobalId) -> bool:
        """Whether the collection's shard has the column `mz_error`, which holds the message of an error row.
        Materialized views have it.
        """


class StorageReader(KnowsErrors, Protocol):
    """Reads collections that live in shards: tables, sources, collections that the system writes, materialized views.

    Rows have columns c0 … cn in the collection's order and Arrow types (`mzsql.repr.types.arrow_schema`), then
    `mz_error` (text) where `has_errors`, then `mz_time` and `mz_diff` (int64).
    """

    def upper(self, gid: GlobalId) -> Frontier:
        """The collection's upper, fetched as fresh as possible (a table's upper follows the write-ahead log's)."""

    def seen_upper(self, gid: GlobalId) -> Frontier:
        """The collection's upper as this process saw it last. It makes no call to a backend for collections whose every
        change `watch` reports.
        """

    def since(self, gid: GlobalId) -> Frontier:
        """The earliest time at which the collection can be read now."""

    def wait_for_upper(self, gid: GlobalId, past: Timestamp, timeout: float) -> Frontier:
        """Wait until the collection's upper is beyond `past`, and return that upper.

        Raises:
            NotReadable: the upper is not beyond `past` after `timeout` seconds.
        """

    def awaited(self) -> Sequence[GlobalId]:
        """The collections that some reader in this process waits for now, so that their dataflows can be opened first."""

    def updates(self, gid: GlobalId, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """All updates with ``lower <= mz_time < upper`` at their exact times; `upper` is at most the collection's upper."""

    def small_updates(
        self, gid: GlobalId, lower: Timestamp, upper: Timestamp, *, rows: int, size: int
    ) -> tuple[pa.Table, int] | None:
        """As `updates`, with the bytes of their parts, if these hold at most `rows` rows and `size` bytes; None if they hold more."""

    def parts_between(self, gid: GlobalId, lower: Timestamp, upper: Timestamp) -> Sequence[PartRef]:
        """The parts that may hold updates of ``[lower, upper)``: their sizes bound what `updates` would return, and
        Spark can read them by path.
        """

    def parts(self, gid: GlobalId, as_of: Timestamp) -> Sequence[PartRef]:
        """The parts that make up the contents at `as_of`, which must be below the collection's upper."""

    def hold(self, gid: GlobalId, since: Timestamp) -> ReadHold:
        """Hold the collection readable from `since` on, or from its present since where that is later; the hold's
        `since` tells which.

        The hold should outlive the process. If a restart loses it, the dataflow may have to hydrate anew, but no
        result becomes wrong.
        """

    def moved(self, gid: GlobalId) -> None:
        """Report that this process has moved the collection's upper, perhaps without a write to its shard, so that
        waiting readers look again.
        """

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` whenever some collection's upper may have moved, through this process or another one.

        Args:
            callback: called from any thread; must return at once.

        Returns:
            A function that ends the watching.
        """


class ExportLog(Protocol):
    """The log in which one write makes the outputs of many dataflows durable (`storage.export_log` implements it).

    A dataflow adds the batches of its view or index here instead of appending to the shard at each step; the shard
    follows later (docs/architecture.md, decision 7). All calls except `begin`, `attach`, `follow` and `flush` return at once.
    """

    def begin(self) -> None:
        """Create the log if it does not exist, and read what it contains."""

    def attach(self, handle: WriteHandle) -> None:
        """Give a writer the batches that the log holds for its shard, those of now and those added later."""

    def detach(self, handle: WriteHandle) -> None:
        """Stop what `attach` began. Idempotent."""

    def add(self, batch: Batch) -> None:
        """Queue a batch of definite updates (or an empty span) of a shard for the next write to the log.

        A batch whose lower equals its upper carries no updates: it tells processes that follow the log that the
        shard was written directly.
        """

    def others(self, shard: str) -> Timestamp:
        """How far other processes have written an attached shard, as far as was noticed since it was attached; 0 if nothing was. No
        backend is called.
        """

    def follow(self) -> object:
        """Fetch what other processes have written, and give it to the attached writers."""

    def settle(self) -> None:
        """Tell the log that no running step will add more soon, so it need not wait for further batches before it
        writes.
        """

    def hasten(self) -> None:
        """Tell the log that others wait for what was added, so that an empty span is written as soon as updates are."""

    def flush(self) -> None:
        """Write everything that was added to the log.

        Raises:
            LocationError: the write failed. The batches stay queued.
        """


class ArrangementRegistry(Protocol):
    """The durable map from an arrangement's fingerprint to its shard, for each replica. The adapter keeps it in the
    catalog shard.
    """

    def arrangement_shard(self, replica: str, fingerprint: str) -> str | None:
        """The shard that is recorded for the fingerprint, or None."""

    def update(self, replica: str, shards: Mapping[str, str | None]) -> None:
        """Record the shard of each fingerprint, replacing an earlier one; None removes the entry.

        All changes are made in one write, which is durable when the call returns.
        """

    def entries(self, replica: str) -> Mapping[str, str]:
        """Every fingerprint that is recorded for the replica, with its shard."""

    def runs(self, replica: str) -> bool:
        """Whether nobody else had become the one to run the replica when this was called. Asks the catalog's shard."""


#: Factor on `driver_rows` and `driver_bytes` where work has to run in this process because Spark is not to be used or
#: could not do it.
ALONE = 50


class ComputeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a replica. Bounds are in rows, bytes and seconds, as each name says."""

    workers: int = 2
    """Number of workers: slices of the key space into which each arrangement is divided (the replica's SIZE)."""
    read_only: bool = False
    """Another deployment writes the materialized views. Dataflows of this replica fill arrangements of their own and
    follow the views' shards.
    """
    arrangement_format: str = ARRANGEMENT_FORMAT
    """The format version of arrangements. Arrangement shards of another format are not reused."""
    driver_rows: int = 1_000_000
    """Most rows of one relation or result that are brought to the driver. See `driver_bytes`."""
    driver_bytes: int = 64 * 1024 * 1024
    """Most stored bytes of one relation or result that are brought to the driver. Past either bound Spark reads and
    writes Parquet instead.
    """
    hot_rows: int = 20_000_000
    """An arrangement with more updates than this has no trace: lookups read its shard."""
    warm_rows: int = 20_000_000
    """The trace of an arrangement with at most so many updates is built while the arrangement is filled; that of a
    larger one when it is first looked up.
    """
    hot_bytes: int = 1 << 30
    """Memory for the traces of a replica, in bytes, without what is mapped from files."""
    keep_seconds: float = 60.0
    """The trace of a large arrangement is saved to local files for the next restart after so many seconds, and when its
    dataflow is closed.
    """
    flush_seconds: float = 5.0
    """Updates of an arrangement are written to its shard after so many seconds, …"""
    flush_writes: int = 50
    """… or later, if the replica's arrangements would otherwise cause more than so many writes a second …"""
    flush_bytes: int = 16 * 1024 * 1024
    """… but as soon as so many bytes of updates wait."""
    inline_rows: int = 50_000
    """A relation with more rows than this is handed to Spark as a Parquet file, a smaller one inline in the plan."""
    hydrate_here_bytes: int = 64 * 1024 * 1024
    """With `step_engine` auto, a hydration whose inputs have at most so many stored bytes runs in this process, in
    DuckDB.
    """
    small_hydration_bytes: int = 8 * 1024 * 1024
    """The result of a Spark hydration job whose inputs have fewer stored bytes is collected and written by the driver."""
    quiet_seconds: float = 1.0
    """Without an export log: a view that had no updates writes its frontier to its shard after so many seconds …"""
    quiet_writes: int = 100
    """… or later, if the replica's views would otherwise cause more than so many such writes a second."""
    apply_seconds: float = 10.0
    """With an export log: a view's batches in the log are applied to its shard after so many seconds …"""
    apply_batches: int = 64
    """… or as soon as the shard lacks so many batches …"""
    apply_bytes: int = 1024 * 1024
    """… or so many bytes."""
    stands_by: bool = False
    """Whether its views stand by while another replica writes them (`compute.replica.scheduling.standby`): so where the replica's
    process has no sessions that would have to wait for what the other writes.
    """
    node_hydration: bool = True
    """Whether hydration is reported for each worker of each LIR node, or only for whole objects."""
    step_engine: str = "auto"
    """The engine of steps and hydrations: ``duckdb`` (in this process), ``spark``, or ``auto``, which chooses by how
    much data is touched.
    """
    alone: bool = False
    """Set for one attempt with ``auto`` after Spark failed at it: the in-process bounds are then those of `step_engine`
    duckdb.
    """
    step_threads: int = 1
    """Most steps, of different dataflows, that run at once; a step that has run for `step_patience` is not counted. The
    default is 1 because two steps in one process compete for the interpreter's lock and the cores, and finish later
    than one after the other.
    """
    step_patience: float = 1.0
    """Seconds after which a running step no longer keeps the next one from starting."""
    hydration_concurrency: int = 2
    """Most dataflows that hydrate at once; of the others, what somebody waits for is next, then what came first."""
    hydration_patience: float = 5.0
    """Seconds after which a running hydration no longer keeps the next one from starting."""
    most_threads: int = 16
    """Most steps, and most hydrations, that run at once in any case, including those that have outlasted their
    patience.
    """
    publish_seconds: float = 1.0
    """A hydration records the arrangements it has filled in the registry once it has spent so many seconds on them, so
    that a repeated attempt, or another dataflow, finds them.
    """
    retry_seconds: float = 0.5
    """Pause after a first failure, in seconds; it doubles with each further failure …"""
    retry_max_seconds: float = 30.0
    """… up to this."""
    since_seconds: float = 1.0
    """Least time between two downgrades of a dataflow's holds on inputs and arrangements, in seconds."""
    idle_seconds: float = 1.0
    """A replica that is told of no change checks the uppers of its inputs after so many seconds."""
    timeout: float = 60.0
    """Timeout of each call to storage or persist, in seconds."""
    refreshes_kept: int = 1000
    """How many `RefreshStats` are kept."""

    @property
    def engine(self) -> str:
        """The value of `step_engine` that a step begun now uses. A running replica overrides it, since
        `UpdateConfiguration` can change it.
        """
        return self.step_engine

    @property
    def rows_here(self) -> int:
        """Most rows of one relation that may be brought into this process: `driver_rows`, times `ALONE` where Spark is
        not to be used.
        """
        return self.driver_rows * self._times_here

    @property
    def bytes_here(self) -> int:
        """Most stored bytes of one relation that may be brought into this process: `driver_bytes`, times `ALONE` where
        Spark is not to be used.
        """
        return self.driver_bytes * self._times_here

    @property
    def _times_here(self) -> int:
        return ALONE if self.engine == "duckdb" or self.alone else 1
