"""The inputs of a dataflow, behind one interface: collections read through storage, and arrangements of indexes of the
same replica.

Promise: an input returns updates and parts with exactly the columns that rendering expects (c0 …, `mz_error` where
the input has errors, `mz_time`, `mz_diff`), and they stay readable at its hold's time and later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import pyarrow as pa

from mzsql.compute.dependencies import StorageReader
from mzsql.compute.replica.arrangements.arrangement import Arrangement
from mzsql.compute.replica.endings import each_by_itself
from mzsql.compute.replica.target import with_time
from mzsql.persist import CriticalReader, PartRef
from mzsql.render.rendered import InputSpec
from mzsql.repr.frontier import Frontier, Timestamp, less_than
from mzsql.repr.ids import GlobalId
from mzsql.repr.lazy import lazy_property
from mzsql.repr.types import updates_schema


def input_schema(spec: InputSpec) -> pa.Schema:
    """The columns of an input's rows: c0 …, then `mz_error` if the input has errors; without time and diff."""
    return updates_schema(spec.columns, errors=spec.has_errors)


class Input(Protocol):
    """One imported collection or index of a dataflow."""

    spec: InputSpec

    @property
    def schema(self) -> pa.Schema:
        """The columns of its rows."""

    @property
    def since(self) -> Frontier:
        """The earliest time that is kept readable for this dataflow."""

    def upper(self) -> Frontier:
        """The input's upper."""

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """The updates with ``lower <= mz_time < upper``."""

    def small_updates(
        self, lower: Timestamp, upper: Timestamp, *, rows: int, size: int
    ) -> tuple[pa.Table, int] | None:
        """As `updates`, with the bytes of their parts, if these hold at most `rows` rows and `size` bytes; None if they hold more."""

    def parts_between(self, lower: Timestamp, upper: Timestamp) -> Sequence[PartRef]:
        """The parts that may hold updates of ``[lower, upper)``."""

    def parts(self, as_of: Timestamp) -> Sequence[PartRef]:
        """The parts of the contents at `as_of`."""

    def hold(self, since: Timestamp) -> None:
        """Allow times before `since` to be compacted."""

    def let_go(self) -> None:
        """Hold nothing any more: the input is not read again. Idempotent."""

    def close(self, *, retire: bool) -> None:
        """Close the handles. With `retire` also release the hold, which otherwise outlives the process for the next
        start to use.
        """


class CollectionInput:
    """A collection read through storage, held readable from `since` on."""

    def __init__(self, spec: InputSpec, storage: StorageReader, since: Timestamp) -> None:
        self.spec = spec
        self._storage = storage
        self._hold = storage.hold(spec.id, since)

    @lazy_property
    def schema(self) -> pa.Schema:
        """The columns of its rows. Made when they are first read, because there may be thousands of inputs that are
        only held.
        """
        return input_schema(self.spec)

    @property
    def since(self) -> Frontier:
        """The hold's since."""
        return self._hold.since

    def upper(self) -> Frontier:
        """The collection's upper."""
        return self._storage.upper(self.spec.id)

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """The collection's updates in the columns of the import."""
        table = self._storage.updates(self.spec.id, lower, upper)
        return in_columns(table, with_time(self.schema))

    def small_updates(
        self, lower: Timestamp, upper: Timestamp, *, rows: int, size: int
    ) -> tuple[pa.Table, int] | None:
        """The collection's updates in the columns of the import."""
        found = self._storage.small_updates(self.spec.id, lower, upper, rows=rows, size=size)
        return None if found is None else (in_columns(found[0], with_time(self.schema)), found[1])

    def parts_between(self, lower: Timestamp, upper: Timestamp) -> Sequence[PartRef]:
        """The parts that may hold updates of ``[lower, upper)``."""
        return self._storage.parts_between(self.spec.id, lower, upper)

    def parts(self, as_of: Timestamp) -> Sequence[PartRef]:
        """The parts of the contents."""
        return self._storage.parts(self.spec.id, as_of)

    def hold(self, since: Timestamp) -> None:
        """Move the hold forward."""
        self._hold.downgrade(since)

    def let_go(self) -> None:
        """Release the hold."""
        self._hold.release()

    def close(self, *, retire: bool) -> None:
        """Release the hold, with `retire`."""
        if retire:
            self._hold.release()


class Releases(Protocol):
    """What opens arrangements, and takes them back."""

    def release(self, arrangement: Arrangement, *, retire: bool) -> None:
        """Close an arrangement's handles; with `retire`, others may delete its shard."""


class IndexInput:
    """An index of the same replica, read through shard handles of this dataflow's own, and held by a critical reader."""

    def __init__(
        self,
        spec: InputSpec,
        arrangement: Arrangement,
        hold: CriticalReader,
        *,
        frontier: Callable[[GlobalId], Frontier],
        arrangements: Releases,
    ) -> None:
        self.spec = spec
        self.schema = input_schema(spec)
        self.arrangement = arrangement
        self._hold = hold
        self._frontier = frontier
        self._arrangements = arrangements

    @property
    def since(self) -> Frontier:
        """The since of the arrangement's read handle."""
        return self.arrangement.since

    def upper(self) -> Frontier:
        """How far the index's dataflow has advanced."""
        return self._frontier(self.spec.id)

    def updates(self, lower: Timestamp, upper: Timestamp) -> pa.Table:
        """The index's updates."""
        return in_columns(self.arrangement.updates(lower, upper), with_time(self.schema))

    def small_updates(
        self, lower: Timestamp, upper: Timestamp, *, rows: int, size: int
    ) -> tuple[pa.Table, int] | None:
        """The index's updates."""
        found = self.arrangement.small_updates(lower, upper, rows=rows, size=size)
        return None if found is None else (in_columns(found[0], with_time(self.schema)), found[1])

    def parts_between(self, lower: Timestamp, upper: Timestamp) -> Sequence[PartRef]:
        """The parts that may hold updates of ``[lower, upper)``."""
        return self.arrangement.parts_between(lower, upper)

    def parts(self, as_of: Timestamp) -> Sequence[PartRef]:
        """The parts of the contents."""
        return self.arrangement.parts(as_of)

    def hold(self, since: Timestamp) -> None:
        """Downgrade the read handle and the critical reader."""
        self.arrangement.hold(since)
        if less_than(self._hold.since, since):
            self._hold.downgrade_since(since)

    def let_go(self) -> None:
        """Release the hold. The handles stay open, but hold nothing back."""
        each_by_itself((self._hold.release, self.arrangement.let_go))

    def close(self, *, retire: bool) -> None:
        """Close the handles; with `retire` release the hold too."""
        held = (self._hold.release,) if retire else ()
        release = partial(self._arrangements.release, self.arrangement, retire=False)
        each_by_itself((*held, release))


def in_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the schema's columns of a table, in the schema's order and types."""
    if table.schema.equals(schema):
        return table
    columns = [table.column(name) for name in schema.names]
    # Compare types first: casting a whole table looks at every column, which for a table of few rows takes longer than
    # everything else here.
    if any(one.type != field.type for one, field in zip(columns, schema, strict=True)):
        return table.select(schema.names).cast(schema)
    return pa.Table.from_arrays(columns, schema=schema)
