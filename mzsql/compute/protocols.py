"""What compute needs from its neighbours, and what a replica may be told when it begins.

Promise: the protocols are structural, so `storage` (which may not import this room) and `adapter` satisfy them without inheriting.
All calls block, are safe from any thread, and end within their timeout. The settings are a frozen value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import msgspec
import pyarrow as pa

from mzsql.persist import Batch, PartRef, WriteHandle
from mzsql.render.naming import ARRANGEMENT_FORMAT
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId


class ReadHold(Protocol):
    """Keeps a collection readable at and beyond a time."""

    @property
    def since(self) -> Frontier:
        """The time that is held."""

    def downgrade(self, since: Frontier) -> None:
        """Let go of the times before `since`; an earlier one than now held changes nothing."""

    def release(self) -> None:
        """Let go of everything. Idempotent."""


class KnowsErrors(Protocol):
    """Knows which collections have errors among their rows."""

    def has_errors(self, gid: GlobalId) -> bool:
        """Whether the collection's shard has the column `mz_error` (materialized views do)."""


class StorageReader(KnowsErrors, Protocol):
    """Reads of collections that live on shards: tables, sources, storage-managed collections, other materialized views.

    Rows have columns c0 … cn in the collection's order and Arrow types (`mzsql.repr.types.arrow_schema`), then `mz_error` (text) where
    `has_errors`, then `mz_time` and `mz_diff` (int64).
    """

    def upper(self, gid: GlobalId) -> Frontier:
        """The collection's upper, as fresh as it is known (a table's follows the write-ahead log's)."""

    def seen_upper(self, gid: GlobalId) -> Frontier:
        """As `upper`, but as last seen where `watch` tells of every change: asks nobody it need not."""

    def since(self, gid: GlobalId) -> Frontier:
        """The earliest time at which the collection can be read now."""

    def wait_for_upper(self, gid: GlobalId, past: Timestamp, timeout: float) -> Frontier:
        """Wait until upper > `past`; the upper then. Raises NotReadable at the timeout (seconds)."""

    def awaited(self) -> Sequence[GlobalId]:
        """The collections that somebody in this process waits for now: what brings them forward is best done first."""

    def updates(self, gid: GlobalId, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """All updates with ``lower <= mz_time < upper`` at their exact times; `upper` is at most the collection's upper."""

    def parts_between(self, gid: GlobalId, lower: Timestamp, upper: Timestamp) -> Sequence[PartRef]:
        """The parts that may hold updates of ``[lower, upper)``: tells how much `updates` would bring, and lets Spark read them."""

    def parts(self, gid: GlobalId, as_of: Timestamp) -> Sequence[PartRef]:
        """The parts of the contents at `as_of`, which is complete already."""

    def hold(self, gid: GlobalId, since: Timestamp) -> ReadHold:
        """Hold the collection's since at `since` or the present since, whichever is later (the hold's `since` tells).

        The hold should outlive the process (or its loss at a restart costs a new hydration, never a wrong result).
        """

    def moved(self, gid: GlobalId) -> None:
        """The collection's upper has moved here, perhaps without a write to its shard: whoever follows it is to look."""

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` (which returns at once) from any thread whenever some collection's upper may have moved, by this process
        or another. The result ends the watching.
        """


class ExportLog(Protocol):
    """Where the exports of many dataflows become durable with one write (`storage` has one). All calls but `begin`, `attach` and `flush`
    return at once.
    """

    def begin(self) -> None:
        """Make sure that it is there, and know what it has."""

    def attach(self, handle: WriteHandle) -> None:
        """Have a writer know what the log has of its shard, now and later."""

    def detach(self, handle: WriteHandle) -> None:
        """No longer. Idempotent."""

    def add(self, batch: Batch) -> None:
        """Commit definite updates of a shard, or that there are none, soon; without length: tell others that the shard has moved."""

    def settle(self) -> None:
        """Nothing is under way that will be added soon."""

    def flush(self) -> None:
        """Commit all that was added. Raises LocationError; nothing is lost then."""


class ArrangementRegistry(Protocol):
    """The durable memory of which shard holds which arrangement (the adapter keeps it in the catalog shard)."""

    def arrangement_shard(self, replica: str, fingerprint: str) -> str | None:
        """The shard that was put for the fingerprint, if any."""

    def update(self, replica: str, shards: Mapping[str, str | None]) -> None:
        """Remember the shard of each fingerprint instead of the one before, forget it where it is None; all at once, durable on return."""

    def entries(self, replica: str) -> Mapping[str, str]:
        """Every fingerprint of the replica with its shard."""


#: How many times as much may come into the process where it has to do without Spark.
ALONE = 50


class ComputeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a replica may be told, with the bounds in rows, bytes and seconds."""

    workers: int = 2
    """Slices of the key space of each arrangement (the replica's SIZE)."""
    read_only: bool = False
    """Views are written by another deployment: their dataflows fill arrangements of their own, and follow the views' shards."""
    arrangement_format: str = ARRANGEMENT_FORMAT
    """Arrangements of another format are not reused."""
    driver_rows: int = 1_000_000
    """At most so many rows of one relation or result come to the driver …"""
    driver_bytes: int = 64 * 1024 * 1024
    """… and at most so many stored bytes; past either, Spark reads and writes Parquet."""
    hot_rows: int = 20_000_000
    """Arrangements of more updates than this are looked up in their shards."""
    warm_rows: int = 20_000_000
    """Of so many updates at most an arrangement's trace is made while it is filled; larger ones' when they are first looked up."""
    hot_bytes: int = 1 << 30
    """What the traces of a replica have in memory, beside what is mapped from files."""
    keep_seconds: float = 60.0
    """What is close of a large arrangement is kept over a restart after so long, and when its dataflow is closed."""
    flush_seconds: float = 5.0
    """An arrangement's updates are in its shard after so long, …"""
    flush_writes: int = 50
    """… as much later as it takes for all shards to be no more than so many writes a second …"""
    flush_bytes: int = 16 * 1024 * 1024
    """… or as soon as so many bytes of them wait."""
    inline_rows: int = 50_000
    """A relation with more rows than this reaches Spark as a Parquet file instead of inline."""
    hydrate_here_bytes: int = 64 * 1024 * 1024
    """A hydration whose inputs have at most so many stored bytes runs in process where `step_engine` leaves that open."""
    small_hydration_bytes: int = 8 * 1024 * 1024
    """A hydration job whose inputs have fewer stored bytes is collected and written by the driver."""
    quiet_seconds: float = 1.0
    """Without a log of exports, a view's shard has the frontier of a view that had no updates after so long …"""
    quiet_writes: int = 100
    """… or as much later as it takes for all views' to be no more than so many writes a second."""
    apply_seconds: float = 10.0
    """A view's shard has what the log of exports has of it after so long …"""
    apply_batches: int = 64
    """… or as soon as it lacks so many batches …"""
    apply_bytes: int = 1024 * 1024
    """… or so many bytes."""
    node_hydration: bool = True
    """Whether the hydration of each worker of each node is told, or that of objects alone."""
    step_engine: str = "auto"
    """What runs steps and hydrations: ``duckdb`` in process, ``spark``, or ``auto``, as what they touch asks for."""
    alone: bool = False
    """With ``auto``, Spark could not do what was asked: as much comes into the process as where there is to be no Spark."""
    step_threads: int = 1
    """Steps of different dataflows that run at once; those that outlast `step_patience` are not counted. Two in one process take turns at
    the interpreter's lock and at the cores that one alone would have: they lengthen each other more than they shorten the whole."""
    step_patience: float = 1.0
    """Seconds after which a step keeps no other one waiting."""
    hydration_concurrency: int = 2
    """Dataflows that hydrate at once; others wait their turn, first come first served."""
    hydration_patience: float = 5.0
    """Seconds after which a hydration goes on beside those that wait for their turn, instead of before them."""
    most_threads: int = 16
    """The most steps, and the most hydrations, that run at once however long they take."""
    publish_seconds: float = 1.0
    """A hydration's arrangements are found by the next attempt, and by others, as soon as this long was spent on filling them."""
    retry_seconds: float = 0.5
    """First pause after a failure; doubles …"""
    retry_max_seconds: float = 30.0
    """… up to this."""
    since_seconds: float = 1.0
    """Holds on inputs and arrangements are moved forward at most this often."""
    idle_seconds: float = 1.0
    """A replica that heard of nothing looks at its inputs' uppers after so long."""
    timeout: float = 60.0
    """Seconds a call to storage or persist may take."""
    refreshes_kept: int = 1000
    """How many `RefreshStats` are remembered."""

    @property
    def engine(self) -> str:
        """`step_engine`, as far as it is known here now."""
        return self.step_engine

    @property
    def rows_here(self) -> int:
        """So many rows of one relation may come into the process: more where there is no Spark to take them."""
        return self.driver_rows * self._times_here

    @property
    def bytes_here(self) -> int:
        """And so many stored bytes."""
        return self.driver_bytes * self._times_here

    @property
    def _times_here(self) -> int:
        return ALONE if self.engine == "duckdb" or self.alone else 1
