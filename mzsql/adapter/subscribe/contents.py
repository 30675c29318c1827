"""What a SUBSCRIBE reads, by time.

Promise: the contents at one time and then the updates between two times, the same whether they are a relation's own or those of a dataflow
over several.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from mzsql.adapter.subscribe.inputs import Input
from mzsql.compute.replica.transient import TransientDataflow
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId


class Contents:
    """What is subscribed to, over its inputs: the inputs themselves, or a dataflow over them."""

    def __init__(
        self, inputs: Mapping[GlobalId, Input], flow: TransientDataflow | None = None
    ) -> None:
        self.inputs = inputs
        self._flow = flow

    @property
    def temporal(self) -> bool:
        """Whether rows come and go as time passes."""
        return self._flow is not None and self._flow.temporal

    def snapshot(self, as_of: Timestamp) -> pa.RecordBatchReader | pa.Table:
        """The contents: c0 …, [mz_error], [mz_time], mz_diff."""
        given = {gid: one.snapshot(as_of) for gid, one in self.inputs.items()}
        if self._flow is not None:
            return self._flow.hydrate(given)
        (rows,) = given.values()
        return rows

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table | None:
        """The updates of ``[lower, upper)``: c0 …, [mz_error], mz_time, mz_diff; None where there can be none."""
        deltas = {gid: one.updates(lower, upper) for gid, one in self.inputs.items()}
        if not self.temporal and not any(delta.num_rows for delta in deltas.values()):
            return None
        if self._flow is not None:
            return self._flow.step(deltas, lower, upper)
        (rows,) = deltas.values()
        return rows

    def interrupt(self) -> None:
        """End what runs; from any thread."""
        if self._flow is not None:
            self._flow.interrupt()

    def close(self) -> None:
        """Let go of everything. Idempotent."""
        for one in self.inputs.values():
            one.close()
        if self._flow is not None:
            self._flow.close()
