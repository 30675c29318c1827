"""The contents of a SUBSCRIBE: at one time, and its updates between times.

Promise: the interface is the same whether the subscription reads one relation's shard or a dataflow over several
inputs.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from mzsql.adapter.subscribe.inputs import Input
from mzsql.compute.replica.dataflows.transient import TransientDataflow
from mzsql.repr.frontier import Timestamp
from mzsql.repr.ids import GlobalId


class Contents:
    """The contents of a subscription: of its only input, or of a dataflow over its inputs."""

    def __init__(
        self, inputs: Mapping[GlobalId, Input], flow: TransientDataflow | None = None
    ) -> None:
        self.inputs = inputs
        self._flow = flow

    @property
    def temporal(self) -> bool:
        """Whether rows appear and disappear as time passes, without any write (the dataflow filters by ``mz_now()``)."""
        return self._flow is not None and self._flow.temporal

    def snapshot(self, as_of: Timestamp) -> pa.RecordBatchReader | pa.Table:
        """The contents at ``as_of``, with the columns c0, c1, …, [mz_error], [mz_time], mz_diff."""
        given = {gid: one.snapshot(as_of) for gid, one in self.inputs.items()}
        if self._flow is not None:
            return self._flow.hydrate(given)
        (rows,) = given.values()
        return rows

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table | None:
        """The updates in ``[lower, upper)``, with the columns c0, c1, …, [mz_error], mz_time, mz_diff; None where there
        can be none.
        """
        deltas = {gid: one.updates(lower, upper) for gid, one in self.inputs.items()}
        if not self.temporal and not any(delta.num_rows for delta in deltas.values()):
            return None
        if self._flow is not None:
            return self._flow.step(deltas, lower, upper)
        (rows,) = deltas.values()
        return rows

    def interrupt(self) -> None:
        """Interrupt what runs; callable from any thread."""
        if self._flow is not None:
            self._flow.interrupt()

    def close(self) -> None:
        """Release the inputs and the dataflow. Idempotent."""
        for one in self.inputs.values():
            one.close()
        if self._flow is not None:
            self._flow.close()
