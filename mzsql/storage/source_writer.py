"""The source writer: reads a source, gives its messages their times, and writes them to a shard, exactly once.

Promise: any number of instances, at once and one after another, write the same shard. A message's time comes from
the bindings (`mzsql.storage.bindings`), and the shard's upper tells each instance from where to read, so each
message is in the shard once, at the same time whoever wrote it, however instances crash between any two steps. The
source must keep a message's offset forever. Memory is bounded by the size of the source's record batches. Source:
Materialize's persist design, "A source needs to roughly do this".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from mzsql.persist import ExpiredHandle, PersistClient, SchemaMismatch, ShardFinalized, Updates
from mzsql.repr.frontier import MAX_TIMESTAMP, Frontier, Timestamp, less_than, meet
from mzsql.storage.bindings import BindingReader, BindingState, with_times
from mzsql.storage.minting import BindingMinter

_COMPACT_STEPS = 16


class Source(Protocol):
    """Something to read messages from, each under a partition and an offset that never change."""

    def high_watermarks(self) -> Mapping[str, int]:
        """For each partition the greatest offset that can be read now."""

    def read(self, ranges: Mapping[str, tuple[int, int]]) -> pa.Table | pa.RecordBatchReader:
        """All messages with ``first <= offset <= last`` for each partition's ``(first, last)``, which can be read now.

        Columns: those of the shard that is written, ``partition``, ``offset``, and optionally ``mz_diff`` (1 without
        it).
        """


class SourceWriter:
    """One instance of the writer of a source's data.

    Args:
        persist: the client of the shards.
        source: what is read.
        bindings: the shard of the source's bindings.
        shard_id: the shard of its data, created if it does not exist.
        schema: that shard's columns; ``partition`` and ``offset`` may be among them.
        minter: asked to bind what the source has before each step; without one somebody else mints
            (`BindingMinter.mint`).
    """

    def __init__(
        self,
        persist: PersistClient,
        source: Source,
        *,
        bindings: str,
        shard_id: str,
        schema: pa.Schema,
        minter: BindingMinter | None = None,
    ) -> None:
        self._source = source
        self._minter = minter
        self._schema = schema
        self._steps = 0
        self._writer = persist.open_writer(shard_id, schema, purpose="data of a source")
        # The hold has the name of the shard that it is for, so that all instances share it.
        self.bindings = BindingReader(
            persist, bindings, consumer=shard_id, purpose=f"writing the data shard {shard_id}"
        )

    def step(self) -> Frontier:
        """Write everything that is bound; return the data shard's upper then. Call it repeatedly, also after an error.

        Raises:
            SinceViolation: the bindings of data that is not written yet were given up.
            SchemaMismatch: the source's messages do not fit.
            LocationError: a backend failed.
        """
        if self._minter is not None:
            self._minter.cover(self._source.high_watermarks())
        state = self.bindings.follow()
        lower = self._writer.fetch_upper()
        if lower is None or not less_than(lower, state.upper):
            return lower
        state.check_exact(self.bindings.shard_id, lower)
        before = state.bound_at(lower - 1)
        ranges = {
            partition: (before.get(partition, -1) + 1, last)
            for partition, last in state.bound.items()
            if last > before.get(partition, -1)
        }
        updates = self._updates(self._source.read(ranges), state, lower) if ranges else None
        try:
            self._writer.append(updates, lower=lower, upper=state.upper)
        except ShardFinalized:
            raise
        except ExpiredHandle:
            # This process slept longer than its lease. The source is definite, so it can be read again.
            self._writer = self._writer.reopened()
            again = self._updates(self._source.read(ranges), state, lower) if ranges else None
            self._writer.append(again, lower=lower, upper=state.upper)
        self._steps += 1
        if self._steps % _COMPACT_STEPS == 0:
            self.compact()
        return self._writer.upper

    def compact(self) -> None:
        """Give up the bindings of what the data shard contains; done every `_COMPACT_STEPS` steps."""
        written, known = self._writer.fetch_upper(), self.bindings.upper
        until = meet(written, known)
        self.bindings.compact(MAX_TIMESTAMP if until is None else until)

    def _updates(
        self, messages: pa.Table | pa.RecordBatchReader, state: BindingState, lower: Timestamp
    ) -> Updates:
        names = [*self._schema.names, "mz_time", "mz_diff"]

        def bound(table: pa.Table) -> pa.Table:
            found = with_times(state, table, lower).updates
            if "mz_diff" not in found.column_names:
                ones = pa.repeat(pa.scalar(1, pa.int64()), found.num_rows)
                found = found.append_column("mz_diff", ones)
            for name in names:
                if name not in found.column_names:
                    raise SchemaMismatch(f'the messages of a source lack the column "{name}"')
            return found.select(names)

        schema = bound(messages.schema.empty_table()).schema
        batches = (batch for table in _tables(messages) for batch in bound(table).to_batches())
        return pa.RecordBatchReader.from_batches(schema, batches)

    def close(self) -> None:
        """Close the handles; the hold on bindings stays for the next instance. Idempotent."""
        self.bindings.close()
        self._writer.expire()


def _tables(messages: pa.Table | pa.RecordBatchReader) -> Iterator[pa.Table]:
    if isinstance(messages, pa.Table):
        yield messages
    else:
        for batch in messages:
            yield pa.Table.from_batches([batch])
