"""What a read selects, pushed down to where it saves reading: to parts, row groups, then rows.

Promise: pruning by statistics is conservative, filtering rows is exact: a read with filters returns exactly the rows
of the same read without them that match the filters. A filter is a conjunction over columns of inclusive ranges, see
`KeyRange`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mzsql.persist.batch import TIME_COLUMN, KeySpec, Part, first_time, last_time
from mzsql.persist.errors import CorruptPart, SchemaMismatch
from mzsql.persist.stats import KeyRange, Lookup
from mzsql.repr.frontier import Frontier, Timestamp, less_equal, less_than

# Arrow imports pandas, where there is one, when it makes its first scalar: some tenths of a second, which pass while this
# module is imported rather than in the midst of a stream.
pa.scalar(0)

Filters: TypeAlias = Mapping[str, Sequence[KeyRange]]
"""For each column filtered by, inclusive ranges ``(lo, hi)``: one `None` leaves that side open, two ask for NULL.

A row is kept if for every column some range contains its value. NaN is above all other numbers, as in PostgreSQL.
"""


class Pushdown(NamedTuple):
    """Which updates a read selects: those with times in ``[lower, upper)`` that match every lookup."""

    lookups: tuple[Lookup, ...] = ()
    lower: Timestamp = 0
    upper: Frontier = None

    @property
    def columns(self) -> list[str]:
        """The columns it filters by."""
        return [lookup.column for lookup in self.lookups]

    def within(self, lower: Timestamp, upper: Frontier) -> Pushdown:
        """Return the same pushdown for times in ``[lower, upper)`` only."""
        return self._replace(lower=lower, upper=upper)

    def may_hold_part(self, part: Part) -> bool:
        """Whether the part must be read."""
        return self._meets(first_time(part), last_time(part)) and all(
            lookup.may_hold_part(part.stats) for lookup in self.lookups
        )

    def cuts_times(self, part: Part) -> bool:
        """Whether the part may have updates at other times too."""
        return first_time(part) < self.lower or less_equal(self.upper, last_time(part))

    def groups(self, metadata: pq.FileMetaData, floor: Timestamp) -> list[int]:
        """Return the row groups that must be read, in an object whose updates' times are at or above ``floor``."""
        places = [
            (lookup, place)
            for lookup in self.lookups
            if (place := _place(metadata, lookup.column)) is not None
        ]
        times = _place(metadata, TIME_COLUMN)
        return [
            number
            for number in range(metadata.num_row_groups)
            if self._may_hold_group(metadata, number, places, times, floor)
        ]

    def _may_hold_group(
        self,
        metadata: pq.FileMetaData,
        number: int,
        places: Sequence[tuple[Lookup, int]],
        times: int | None,
        floor: Timestamp,
    ) -> bool:
        group = metadata.row_group(number)
        if times is not None:
            found = group.column(times).statistics
            known = found is not None and found.has_min_max
            # Times below the floor count as the floor, see `Batch.rewrite_ts`.
            if known and not self._meets(max(found.min, floor), max(found.max, floor)):
                return False
        return all(
            lookup.may_hold_group(group.column(place).statistics, metadata.schema.column(place))
            for lookup, place in places
        )

    def _meets(self, first: Timestamp, last: Timestamp) -> bool:
        return last >= self.lower and less_than(first, self.upper)

    def filter(self, table: pa.Table) -> pa.Table:
        """Return the selected updates of ``table``, whose times are at or above its floor."""
        times = table[TIME_COLUMN]
        # Times first: comparing integers is cheap, and leaves fewer rows to the lookups.
        if self.lower > 0:
            table = table.filter(pc.greater_equal(times, pa.scalar(self.lower, pa.int64())))
            times = table[TIME_COLUMN]
        if self.upper is not None:
            table = table.filter(pc.less(times, pa.scalar(self.upper, pa.int64())))
        for lookup in self.lookups:
            table = lookup.filter(table)
        return table


def _place(metadata: pq.FileMetaData, name: str) -> int | None:
    """Return the index of a column in the file; `None` if it is ambiguous, because a leaf inside a struct may have the
    same path.
    """
    places = [
        place for place in range(metadata.num_columns) if metadata.schema.column(place).path == name
    ]
    return places[0] if len(places) == 1 else None


def lookups_of(
    schema: pa.Schema, key: KeySpec | None, filters: Filters | None, what: str
) -> tuple[Lookup, ...]:
    """Return the filters as lookups.

    Raises:
        SchemaMismatch: a column does not exist, has no order or is additive, or a bound is not of its type.
    """
    if filters is None:
        return ()
    if not isinstance(filters, Mapping):
        raise SchemaMismatch(
            f"{what}: filters are a mapping from columns to ranges, not a {type(filters).__name__}"
        )
    made: list[Lookup] = []
    for column, ranges in filters.items():
        if column not in schema.names:
            raise SchemaMismatch(f'{what} has no column "{column}" to filter by')
        if key is not None and column in key.additive:
            raise SchemaMismatch(
                f'{what}: column "{column}" is additive, and what is stored of it are summands, not values',
                hint="Filter the consolidated rows instead.",
            )
        made.append(Lookup(column, schema.field(column).type, ranges))
    return tuple(made)


def pushdown_of(
    schema: pa.Schema,
    key: KeySpec | None,
    filters: Filters | None,
    what: str,
    key_ranges: Sequence[KeyRange] | None = None,
) -> Pushdown:
    """Return the filters, and ranges of the first key column, as a pushdown for all times.

    Raises:
        SchemaMismatch: key ranges for a shard without key; or as `lookups_of`.
    """
    lookups = lookups_of(schema, key, filters, what)
    if key_ranges is None:
        return Pushdown(lookups)
    if key is None or not key.columns:
        raise SchemaMismatch(f"{what} has no key to look up")
    column = key.columns[0]
    return Pushdown((Lookup(column, schema.field(column).type, key_ranges), *lookups))


def checked_columns(
    schema: pa.Schema, columns: Sequence[str] | None, what: str
) -> list[str] | None:
    """Return ``columns``, or `None` if they are all of the schema in its order.

    Raises:
        SchemaMismatch: one does not exist, or is named twice.
    """
    if columns is None:
        return None
    if isinstance(columns, str):
        raise SchemaMismatch(f"{what}: columns are a list of names, not {columns!r}")
    names = list(columns)
    for name in names:
        if name not in schema.names:
            raise SchemaMismatch(f'{what} has no column "{name}"')
    if len(set(names)) < len(names):
        raise SchemaMismatch(f"{what}: a column is asked for twice in {names}")
    return None if names == schema.names else names


def encode_filters(schema: pa.Schema, filters: Filters | None) -> tuple[tuple[str, bytes], ...]:
    """Encode checked filters for another process: for each column its ranges as an Arrow IPC stream of the columns
    ``lo`` and ``hi``.
    """
    encoded: list[tuple[str, bytes]] = []
    for lookup in lookups_of(schema, None, filters, "the shard"):
        form = lookup.form
        ends = [*lookup.ranges, *([(None, None)] if lookup.nulls else [])]
        columns = [pa.array([pair[side] for pair in ends], form) for side in (0, 1)]
        batch = pa.record_batch(columns, names=["lo", "hi"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as stream:
            stream.write_batch(batch)
        encoded.append((lookup.column, sink.getvalue().to_pybytes()))
    return tuple(encoded)


def decode_filters(encoded: Sequence[tuple[str, bytes]]) -> Filters | None:
    """Decode what `encode_filters` encoded, with Arrow scalars as bounds.

    Raises:
        CorruptPart: the bytes are not filters.
    """
    if not encoded:
        return None
    try:
        return {column: list(_decoded_ranges(data)) for column, data in encoded}
    except (pa.ArrowException, OSError, LookupError, ValueError) as failure:
        raise CorruptPart(f"not the filters of a split: {failure}") from failure


def _decoded_ranges(data: bytes) -> Iterator[KeyRange]:
    table = pa.ipc.open_stream(data).read_all()
    for lo, hi in zip(table["lo"], table["hi"], strict=True):
        yield (lo if lo.is_valid else None, hi if hi.is_valid else None)
