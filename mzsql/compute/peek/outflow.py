"""A result's rows on the way to the client, piece by piece.

Promise: `finished` expands consolidated rows to one row for each copy, never more than a piece at a time. `gathered`
keeps rows, and ends the flow when there are more than a session may take. What is too large for memory
(docs/architecture.md, decision 11) is written to a file, which only the returned table maps.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Generator, Iterable
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.peek.row_reads import projected
from mzsql.compute.peek.rows import counted
from mzsql.expr.relation import RowSetFinishing
from mzsql.repr.tables import piece, repeated
from mzsql.repr.types import RelationDesc, arrow_schema

#: Most copies of rows that are made at once …
PIECE_ROWS = 64 * 1024
#: … and most bytes of them, unless a single row is larger.
PIECE_BYTES = 16 * 1024 * 1024

#: Upper bound on the size of a value of a type with fixed width.
_FIXED_BYTES = 16

#: Called with the rows and bytes so far; raises if they are too many.
Check = Callable[[int, int], None]


def _stored_here() -> int:
    """Default of `Limits.stored`: a quarter of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4


class Limits(msgspec.Struct, frozen=True):
    """How much of one input, or of one result, this process holds in memory; more goes through files.

    ``stored`` bounds the encoded bytes of the columns that a query reads: beyond it Spark runs the query, if it can.
    """

    rows: int = ComputeSettings().driver_rows
    bytes: int = ComputeSettings().driver_bytes
    stored: int = msgspec.field(default_factory=_stored_here)

    def exceeded(self, rows: int, size: int) -> bool:
        """Whether so many rows or bytes are too many."""
        return rows > self.rows or size > self.bytes


def expanded(updates: pa.Table, name: str) -> Generator[pa.Table]:
    """As `mzsql.compute.peek.rows.expand`, piece by piece: a row may have a billion copies."""
    rows, counts = counted(updates, name)
    if counts is None:
        yield rows
        return
    yield from repeated(rows, counts, max(1, min(PIECE_ROWS, PIECE_BYTES // max(1, _widest(rows)))))


def _widest(rows: pa.Table) -> int:
    """Upper bound on the bytes of a row."""
    return sum(_widest_value(column) for column in rows.columns)


def _widest_value(column: pa.ChunkedArray) -> int:
    if pa.types.is_nested(column.type):
        return int(column.nbytes)
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        return pc.max(pc.binary_length(column)).as_py() or 0
    return _FIXED_BYTES


def finished(pieces: Iterable[pa.Table], finishing: RowSetFinishing) -> Generator[pa.Table]:
    """Apply OFFSET, LIMIT and projection to consolidated rows (c0 …, [mz_error], mz_diff) that come in order; one row
    for each copy.

    Raises:
        DataError: there is an error row. Error rows come first, so it is raised before any row.
        InternalError: a row has a negative count.
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
) -> tuple[pa.Table, int]:
    """All rows in one table, with the columns of ``desc``, and the bytes that they have in memory.

    Args:
        pieces: the rows; all pieces have the same columns.
        desc: their columns.
        limits: how much of them is held in memory.
        check: called with each piece; may raise.
    """
    with Gathering(desc, limits, check) as rows:
        for one in pieces:
            rows.add(one)
        return rows.table(), rows.bytes


class Gathering:
    """Collects rows in memory, and in a file when there are many. A context manager."""

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
        """Add rows.

        Raises:
            SqlError: ``check`` refuses so many rows or bytes.
        """
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
        """Write the rows so far, and all later ones, into a file."""
        with tempfile.NamedTemporaryFile(prefix="mzsql-result-", delete=False) as made:
            self._file = Path(made.name)
        self._writer = pa.ipc.new_file(str(self._file), self._held[0].schema)
        held, self._held = self._held, []
        for one in held:
            self._writer.write_table(one)

    def table(self) -> pa.Table:
        """All rows that were added; none may be added afterwards."""
        if self._writer is not None:
            assert self._file is not None
            self._writer.close()
            self._writer = None
            # The mapping stays valid after the file is unlinked.
            with pa.memory_map(str(self._file)) as source:
                return pa.ipc.open_file(source).read_all()
        if not self._desc.arity:
            # Of rows without columns only their number matters.
            return pa.table({"mz_copy": pa.nulls(self.rows)}).select([])
        if not self._held:
            return _without_rows(self._desc)
        return self._held[0] if len(self._held) == 1 else pa.concat_tables(self._held)


def _without_rows(desc: RelationDesc) -> pa.Table:
    schema = arrow_schema(desc.typ.columns)
    # Names of a result may repeat, which only the list form of Table's constructor allows.
    return pa.table([pa.array([], field.type) for field in schema], names=list(desc.names))
