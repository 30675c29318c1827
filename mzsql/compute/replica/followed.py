"""The export of a dataflow whose view another deployment writes.

Promise: nothing is written, and no handle of the view's shard is opened: a step's updates of it are let go of, as those of a writer that
has lost every `compare_and_append`. Its upper is what storage knows of the collection. So a dataflow may fill its own arrangements beside
the deployment in charge, to go on from them once it is in charge itself.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from mzsql.compute.protocols import StorageReader
from mzsql.compute.replica.target import Target
from mzsql.persist import Batch, PersistClient
from mzsql.repr.frontier import Frontier, Timestamp
from mzsql.repr.ids import GlobalId


class Followed(Target):
    """A view's shard, of which only the upper is looked at."""

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
        """How far it is written."""
        return self._storage.upper(self._gid)

    @property
    def known_upper(self) -> Frontier:
        """The same, as last seen."""
        return self._storage.seen_upper(self._gid)

    @property
    def durable_upper(self) -> Frontier:
        """The same: nothing of it is made here."""
        return self.known_upper

    def begin_to_tell(self) -> None:
        """Whoever writes it tells."""

    def pass_over(self, lower: Timestamp, upper: Timestamp) -> None:
        """Nothing: see `Target.pass_over`."""

    def late(self) -> float | None:
        """None."""
        return None

    def overfull(self, batches: int, size: int) -> bool:
        """False."""
        del batches, size
        return False

    def flush(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""

    def append(
        self, updates: pa.Table, lower: Timestamp, upper: Frontier, *, exact: bool = False
    ) -> Frontier:
        """Let go of updates that somebody else writes; how far those are written."""
        del updates, lower, upper, exact
        return self.known_upper

    def adopt(
        self, frame: DataFrame, lower: Timestamp, upper: Timestamp, **how: Any
    ) -> tuple[Frontier, int]:
        """As `append`; Spark computes nothing of it."""
        del frame, lower, upper, how
        return self.known_upper, 0

    def adopt_batch(
        self, batch: Batch, upper: Timestamp, *, exact: bool = False
    ) -> tuple[Frontier, int]:
        """As `append`, of what was written already."""
        del upper, exact
        return self.known_upper, batch.rows
