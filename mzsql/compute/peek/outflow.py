"""Rows on their way to whoever asked for them, a piece at a time.

Promise: what passes is looked at while it passes. `finished` makes rows of added-up ones, each as often as it is there, and never more
of them at once than a piece; `gathered` keeps rows until they are more than a session takes, and ends the flow there. What is more
than belongs into memory (docs/architecture.md, decision 11) lies in a file, which the table that is handed out maps and nobody else sees.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.compute.peek.row_reads import projected
from mzsql.compute.peek.rows import counted
from mzsql.compute.protocols import ComputeSettings
from mzsql.expr.relation import RowSetFinishing
from mzsql.repr.tables import piece
from mzsql.repr.types import RelationDesc, arrow_schema

#: So many copies of rows are made at once …
PIECE_ROWS = 64 * 1024
#: … and of so many bytes, but for a row that is larger.
PIECE_BYTES = 16 * 1024 * 1024

#: No value of a type without a length of its own is larger.
_FIXED_BYTES = 16

#: Is told the rows and bytes that there are so far, and raises where they are too many.
Check = Callable[[int, int], None]


def _stored_here() -> int:
    """Encoded bytes of what a query reads, up to which it is this process's: a quarter of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


class Limits(msgspec.Struct, frozen=True):
    """How much of one input, or of one result, this process holds in memory; what is more goes through files.

    ``stored`` is how many encoded bytes the columns that a query reads may have for it to run in this process where Spark could run it.
    """

    rows: int = ComputeSettings().driver_rows
    bytes: int = ComputeSettings().driver_bytes
    stored: int = msgspec.field(default_factory=_stored_here)

    def exceeded(self, rows: int, size: int) -> bool:
        """Whether so much is more."""
        return rows > self.rows or size > self.bytes


def expanded(updates: pa.Table, name: str) -> Generator[pa.Table]:
    """As `mzsql.compute.peek.rows.expand`, a piece at a time: a row may be there a billion times."""
    rows, counts = counted(updates, name)
    if counts is None:
        yield rows
        return
    ends = np.cumsum(counts)
    at_once = max(1, min(PIECE_ROWS, PIECE_BYTES // max(1, _widest(rows))))
    for start in range(0, int(ends[-1]), at_once):
        places = np.arange(start, min(start + at_once, int(ends[-1])))
        yield rows.take(pa.array(np.searchsorted(ends, places, side="right")))


def _widest(rows: pa.Table) -> int:
    """Bytes that no row is larger than."""
    return sum(_widest_value(column) for column in rows.columns)


def _widest_value(column: pa.ChunkedArray) -> int:
    if pa.types.is_nested(column.type):
        return int(column.nbytes)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return pc.max(pc.binary_length(column)).as_py() or 0
    return _FIXED_BYTES


def finished(pieces: Iterable[pa.Table], finishing: RowSetFinishing) -> Generator[pa.Table]:
    """OFFSET, LIMIT and the projection of added-up rows (c0 …, [mz_error], mz_diff) that come in order, a row for each copy.

    Raises:
        DataError: an error row is among those that come; it is met before any row that the limit leaves, as it comes first.
        InternalError: a row with a negative count.
    """
    skip, left = finishing.offset, finishing.limit
    for updates in pieces:
        for rows in expanded(updates, "the result"):
            skipped = min(skip, rows.num_rows)
            skip -= skipped
            taken = piece(rows, skipped, left)
            if left is not None:
                left -= taken.num_rows
            yield projected(taken, finishing)
            if left == 0:
                return


def gathered(
    pieces: Iterable[pa.Table], desc: RelationDesc, limits: Limits, check: Check
) -> pa.Table:
    """All rows as one table, whose columns are those of ``desc``.

    Args:
        pieces: the rows, each piece with the same columns.
        desc: their columns.
        limits: what of them is held in memory.
        check: is asked with each piece.
    """
    with Gathering(desc, limits, check) as rows:
        for one in pieces:
            rows.add(one)
        return rows.table()


class Gathering:
    """Rows that are kept as they come, in memory or in a file; a context manager."""

    def __init__(self, desc: RelationDesc, limits: Limits, check: Check) -> None:
        self._desc = desc
        self._limits = limits
        self._check = check
        self._held: list[pa.Table] = []
        self._file: Path | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self.rows = 0
        self.bytes = 0

    def __enter__(self) -> Gathering:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def add(self, rows: pa.Table) -> None:
        """Keep some rows; raises what ``check`` raises."""
        self.rows += rows.num_rows
        self.bytes += rows.nbytes
        self._check(self.rows, self.bytes)
        if self._writer is not None:
            self._writer.write_table(rows)
            return
        if self._held and not rows.num_rows:
            return
        self._held.append(rows)
        if rows.num_columns and self._limits.exceeded(self.rows, self.bytes):
            self._spill()

    def _spill(self) -> None:
        """From here on the rows go into a file."""
        with tempfile.NamedTemporaryFile(prefix="mzsql-result-", delete=False) as made:
            self._file = Path(made.name)
        self._writer = pa.ipc.new_file(str(self._file), self._held[0].schema)
        held, self._held = self._held, []
        for one in held:
            self._writer.write_table(one)

    def table(self) -> pa.Table:
        """All rows that were added; nothing is added any more."""
        if self._writer is not None:
            assert self._file is not None
            self._writer.close()
            self._writer = None
            # The map stays when the name goes.
            with pa.memory_map(str(self._file)) as source:
                return pa.ipc.open_file(source).read_all()
        if not self._desc.arity:
            # What is left of rows without columns is their number.
            return pa.table({"mz_copy": pa.nulls(self.rows)}).select([])
        if not self._held:
            return _without_rows(self._desc)
        return self._held[0] if len(self._held) == 1 else pa.concat_tables(self._held)


def _without_rows(desc: RelationDesc) -> pa.Table:
    schema = arrow_schema(desc.typ.columns)
    # Names of a result may repeat, which only the list form of Table's constructor allows.
    return pa.table([pa.array([], field.type) for field in schema], names=list(desc.names))
