"""The output of a dataflow whose view another deployment writes.

Promise: nothing is written, and no handle of the view's shard is opened: a step's updates of it are discarded, as
those of a writer that loses every `compare_and_append`. Its upper is what storage knows of the collection. So a new
deployment can fill arrangements of its own while the old one is in charge, and continue from them when it takes
over.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from mzsql.compute.dependencies import StorageReader
from mzsql.compute.replica.target import Target
from mzsql.persist import Batch, PersistClient
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId


class ReadOnlyExport(Target):
    """A view's shard of which only the upper is read; see `Target` for the methods."""

    def __init__(
        self,
        gid: GlobalId,
        shard_id: str,
        schema: pa.Schema,
        persist: PersistClient,
        storage: StorageReader,
    ) -> None:
        self.persist = persist
        self.shard_id = shard_id
        self.schema = schema
        self.log = None
        self._gid = gid
        self._storage = storage

    def upper(self) -> Frontier:
        """The collection's upper."""
        return self._storage.upper(self._gid)

    @property
    def known_upper(self) -> Frontier:
        """The collection's upper as last seen."""
        return self._storage.seen_upper(self._gid)

    @property
    def durable_upper(self) -> Frontier:
        """As `known_upper`: nothing is added here that the shard would lack."""
        return self.known_upper

    def begin_to_tell(self) -> None:
        """Do nothing: the deployment that writes the view wakes its readers."""

    def pass_over(self, lower: Timestamp, upper: Timestamp) -> None:
        """Do nothing."""

    def follow_others(self) -> None:
        """Do nothing: it is the other deployment that writes the shard."""

    def late(self) -> float | None:
        """None: the shard is never behind."""
        return None

    def overfull(self, batches: int, size: int) -> bool:
        """False: the shard lacks nothing."""
        del batches, size
        return False

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def append(
        self, updates: pa.Table, lower: Timestamp, upper: Frontier, *, exact: bool = False
    ) -> Frontier:
        """Discard the updates; return the upper as last seen."""
        del updates, lower, upper, exact
        return self.known_upper

    def adopt(
        self, frame: DataFrame, lower: Timestamp, upper: Timestamp, **how: Any
    ) -> tuple[Frontier, int]:
        """Discard the frame, which Spark then does not compute; return the upper as last seen, and 0 rows."""
        del frame, lower, upper, how
        return self.known_upper, 0

    def adopt_batch(
        self, batch: Batch, upper: Timestamp, *, exact: bool = False
    ) -> tuple[Frontier, int]:
        """Discard the batch; return the upper as last seen."""
        del upper, exact
        return self.known_upper, batch.rows
