"""The rows of COPY FROM in text format and CSV, as text columns with line numbers.

Promise: rows come in the file's order, in batches of bounded size, however long a row is. An error in a row's shape or
encoding is raised with its line number after everything before it was returned, as in PostgreSQL. pyarrow's CSV reader
does the work, on the output of `copy_bytes`. The trade-off: a row longer than the reader's block makes it start again
with twice the block, so a file is read again as often as its longest row doubles the block.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

from mzsql.adapter.statements.copy_bytes import EMPTY_LINE, Stream, csv_bytes, text_bytes
from mzsql.expr.engines import locked_connection
from mzsql.frontend.plan import dml_plans
from mzsql.repr.errors import DataError

#: Rows per batch.
BATCH_ROWS = 64 * 1024
#: The reader's block in bytes, at first and at most; PostgreSQL's rows are at most 1 GiB too.
_BLOCK, _LONGEST = 1 << 20, 1 << 30
#: How many characters of a row or a value an error message shows.
_SHOWN = 100


class TextRows(msgspec.Struct, frozen=True):
    """A batch of rows.

    Attributes:
        texts: their fields as text; NULL for SQL's NULL.
        before: how many lines precede the first row.
        spread: whether a row may span several lines (CSV with quoted newlines).
        table: the table's name, for messages.
    """

    texts: pa.RecordBatch
    before: int
    spread: bool
    table: str

    def line(self, row: int) -> int:
        """The number of the line on which a row ends."""
        return (
            self.before + row + 1 + (_newlines(self.texts.slice(0, row + 1)) if self.spread else 0)
        )

    @property
    def lines(self) -> int:
        """How many lines the rows take."""
        rows: int = self.texts.num_rows
        return rows + (_newlines(self.texts) if self.spread else 0)

    def where(self, row: int, column: str | None = None, field: int | None = None) -> str:
        """The place of an error in PostgreSQL's form: ``COPY t, line 3, column a: "x"``."""
        told = f"COPY {self.table}, line {self.line(row)}"
        if column is None:
            return told
        value = None if field is None else self.texts.column(field)[row].as_py()
        return f"{told}, column {column}" + ("" if value is None else f': "{shortened(value)}"')


def shortened(text: str) -> str:
    """A text cut to the length that messages show."""
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _newlines(texts: pa.RecordBatch) -> int:
    return int(sum(pc.sum(pc.count_substring(c, "\n")).as_py() or 0 for c in texts.columns))


class _Misshapen:
    """The first row with too few or too many fields."""

    def __init__(self, names: list[str], *, header: bool) -> None:
        self.names = names
        self.number: int | None = None
        self.message = ""
        self.text = ""
        self.header_skipped = False
        self._header = header

    def note(self, row: pacsv.InvalidRow) -> str:
        """The CSV reader's callback for such a row; tells it to skip the row."""
        if self._header and row.number == 1:
            self.header_skipped = True  # whatever it says
        elif self.number is None:
            self.number = row.number
            self.text = "" if row.text == EMPTY_LINE else row.text
            self.message = "extra data after last expected column"
            if row.actual_columns < row.expected_columns:
                self.message = f'missing data for column "{self.names[row.actual_columns]}"'
        return "skip"


def text_rows(plan: dml_plans.CopyFromPlan, path: Path, names: list[str]) -> Iterator[TextRows]:
    """The rows of a file.

    Args:
        plan: the COPY.
        path: the file.
        names: the names of the columns that it has.

    Raises:
        DataError: the file is malformed.
    """
    if path.stat().st_size == 0:
        return
    block, done = _BLOCK, 0
    while True:
        try:
            with path.open("rb") as source:
                for rows in _read(plan, source, names, block, done):
                    yield rows
                    done += rows.texts.num_rows
            return
        except pa.ArrowInvalid as failure:
            what = str(failure).splitlines()[0]
            if "straddling" in what and block < _LONGEST:
                block *= 2
            elif "Empty CSV file" in what:
                return
            else:
                source_name = plan.path or "STDIN"
                raise DataError(f"{source_name} is broken: {what}", sqlstate="22P04") from None


def _open(
    plan: dml_plans.CopyFromPlan, source: IO[bytes], names: list[str], block: int, wrong: _Misshapen
) -> pacsv.CSVStreamingReader:
    text = plan.format == "text"
    if text:
        pieces = text_bytes(source, plan.delimiter, len(names))
    else:
        pieces = csv_bytes(source, plan.delimiter, plan.quote, plan.escape, len(names))
    columns = [f"c{n}" for n in range(len(names))]
    return pacsv.open_csv(
        io.BufferedReader(Stream(pieces)),
        read_options=pacsv.ReadOptions(column_names=columns, use_threads=False, block_size=block),
        parse_options=pacsv.ParseOptions(
            delimiter="\t" if text else plan.delimiter,
            quote_char=False if text else plan.quote,
            double_quote=not text,
            escape_char=False,
            newlines_in_values=not text,
            ignore_empty_lines=False,
            invalid_row_handler=wrong.note,
        ),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.binary()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[plan.null],
        ),
    )


def _read(
    plan: dml_plans.CopyFromPlan, source: IO[bytes], names: list[str], block: int, skip: int
) -> Iterator[TextRows]:
    """The rows from number ``skip`` on, read in blocks of ``block`` bytes."""
    table, text = plan.table.name.item, plan.format == "text"
    wrong = _Misshapen(names, header=plan.header)
    header = plan.header
    records = before = 0
    with _open(plan, source, names, block, wrong) as stream:
        for batch in stream:
            found = batch
            if header and (found.num_rows or wrong.header_skipped):
                first = found.slice(0, 0 if wrong.header_skipped else 1)
                records, before = 1, 1 + (0 if text else _newlines(first))
                found, header = found.slice(first.num_rows), False
            if wrong.number is not None:
                found = found.slice(0, wrong.number - 1 - records)
            for start in range(0, found.num_rows, BATCH_ROWS):
                part = found.slice(start, BATCH_ROWS)
                rows = TextRows(part, before, not text, table)
                records, before = records + part.num_rows, before + rows.lines
                left = min(skip, part.num_rows)
                skip -= left
                if left < part.num_rows:
                    here = rows.before if left == 0 else rows.line(left - 1)
                    texts = _decoded(rows).slice(left)
                    texts = _unescaped(texts) if text else texts
                    yield TextRows(texts, here, not text, table)
            if wrong.number is not None and wrong.number - 1 <= records:
                break
    if wrong.number is not None:
        line = max(before, int(plan.header)) + 1
        raise DataError(
            wrong.message,
            detail=f'COPY {table}, line {line}: "{shortened(wrong.text)}"',
            sqlstate="22P04",
        )


def _decoded(rows: TextRows) -> pa.RecordBatch:
    """The rows' bytes decoded as UTF-8; a null character is an error, as in PostgreSQL."""
    try:
        columns = [column.cast(pa.string()) for column in rows.texts.columns]
    except pa.ArrowInvalid:
        raise _undecodable(rows) from None
    nulls = [pc.index(pc.match_substring(column, "\0"), value=True).as_py() for column in columns]
    if max(nulls, default=-1) >= 0:
        raise DataError(
            'invalid byte sequence for encoding "UTF8": 0x00',
            detail=rows.where(min(at for at in nulls if at >= 0)),
            sqlstate="22021",
        )
    return pa.RecordBatch.from_arrays(columns, names=rows.texts.schema.names)


def _undecodable(rows: TextRows) -> DataError:
    """The error for the first row that is not UTF-8."""
    first = min(_first_undecodable(column) for column in rows.texts.columns)
    byte = 0
    for column in rows.texts.columns:
        try:
            (column[first].as_py() or b"").decode()
        except UnicodeDecodeError as failure:
            byte = failure.object[failure.start]
            break
    return DataError(
        f'invalid byte sequence for encoding "UTF8": 0x{byte:02x}',
        detail=rows.where(first),
        sqlstate="22021",
    )


def _first_undecodable(column: pa.Array) -> int:
    """The position of a column's first value that is not UTF-8, by binary search; its length where all are."""
    low, high = 0, len(column)
    while low < high:
        middle = (low + high) // 2
        try:
            column.slice(low, middle + 1 - low).cast(pa.string())
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle + 1
    return low


#: The escapes of COPY's text format.
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def _unescaped(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Raw fields of COPY's text format, with their escapes resolved."""
    if not any(pc.any(pc.match_substring(c, "\\")).as_py() for c in rows.columns):
        return rows
    items = []
    for i in range(rows.num_columns):
        inside = "s"
        for letter, char in _ESCAPES.items():
            inside = f"replace({inside}, chr(92) || '{letter}', chr({ord(char)}))"
        # A backslash before any other character means that character. The value was split at double backslashes before.
        inside = f"regexp_replace({inside}, '\\\\(.)', '\\1', 'gs')"
        pieces = f'string_split("c{i}", chr(92) || chr(92))'
        items.append(
            f"array_to_string(list_transform({pieces}, lambda s: {inside}), chr(92)) AS c{i}"
        )
    connection = locked_connection(settings={"preserve_insertion_order": "true"})
    try:
        connection.register("raw", pa.Table.from_batches([rows]))
        result = connection.sql(f"SELECT {', '.join(items)} FROM raw").to_arrow_table()
    finally:
        connection.close()
    return result.cast(rows.schema).combine_chunks().to_batches()[0]
