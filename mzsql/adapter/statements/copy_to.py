"""COPY … TO: rows in PostgreSQL's text or CSV format, or as CSV or Parquet files.

Promise: the bytes are those that PostgreSQL's COPY writes for the same values. DuckDB makes them column by column, a
batch of rows at a time, so memory is bounded by a batch. A file appears whole or not at all. Under a Blob store's URL
every object holds at most `FILE_ROWS` rows and `FILE_BYTES` bytes, since an object is built in memory; a prefix that is
not empty is refused.
"""

from __future__ import annotations

import io
import os
import stat
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from sqlglot import expressions as exp

from mzsql.adapter.session.copy_paths import ANYWHERE, CopyPaths
from mzsql.adapter.statements.casting import cast_by
from mzsql.compute.replica.dataflows.transient import given
from mzsql.expr import spell
from mzsql.expr.engines import locked_connection, to_sql
from mzsql.expr.functions import find_cast
from mzsql.expr.functions.table import Engine, Sql
from mzsql.expr.scalar import Column, Scalar
from mzsql.frontend.plan import cursor_plans
from mzsql.location import default_registry
from mzsql.repr.errors import InvalidParameter, Unsupported
from mzsql.repr.tables import pieces
from mzsql.repr.types import TEXT, RelationDesc, SqlType

#: Rows converted at a time …
BATCH_ROWS = 16 * 1024
#: … and their bytes, unless a single row is larger.
BATCH_BYTES = 16 * 1024 * 1024
#: Rows per object under a URL …
FILE_ROWS = 250_000
#: … and their bytes in memory, unless a single row is larger.
FILE_BYTES = 128 * 1024 * 1024


def as_text(expr: Scalar, typ: SqlType) -> Scalar:
    """The expression that casts a value to ``text``.

    Raises:
        Unsupported: the type has no text form.
    """
    keys = find_cast(typ, TEXT, "explicit")
    if keys is None:
        raise Unsupported(f"COPY cannot write values of type {typ}")
    return cast_by(keys, expr, TEXT)


class Texts:
    """DuckDB expressions for the text of each column, as PostgreSQL's output functions write it."""

    def __init__(self, desc: RelationDesc) -> None:
        types = [column.type for column in desc.typ.columns]
        self._columns = [Sql(exp.column(f"c{i}", quoted=True), typ) for i, typ in enumerate(types)]
        self.items = [self._text(i, typ) for i, typ in enumerate(types)]

    def _text(self, i: int, typ: SqlType) -> str:
        if typ.kind in ("text", "varchar", "char"):
            return f'"c{i}"'
        if typ.kind == "numeric" and typ.scale is not None:
            # All digits of the declared scale: the cast to text would drop trailing zeros.
            return f'CAST("c{i}" AS VARCHAR)'
        if typ.kind == "boolean":
            # PostgreSQL's output function writes t, the cast writes true.
            return f"CASE WHEN \"c{i}\" THEN 't' WHEN NOT \"c{i}\" THEN 'f' END"
        return to_sql(
            spell.value(as_text(Column(i), typ), self._columns, Engine.DUCKDB), Engine.DUCKDB
        )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _escaped(item: str, delimiter: str) -> str:
    """The SQL that escapes the characters of a value's text that COPY's text format treats specially."""
    steps = [("\\", "\\\\"), ("\b", "\\b"), ("\f", "\\f"), ("\n", "\\n"), ("\r", "\\r")]
    steps += [("\t", "\\t"), ("\v", "\\v")]
    if delimiter != "\t":
        steps.append((delimiter, f"\\{delimiter}"))
    for old, new in steps:
        item = f"replace({item}, chr({ord(old)}), {_quoted(new)})"
    return item


def _csv_quoted(item: str, plan: cursor_plans.CopyToPlan, *, single: bool) -> str:
    """The SQL that quotes a value's text where PostgreSQL does."""
    quote, escape = _quoted(plan.quote), _quoted(plan.escape)
    doubled = item
    if plan.escape != plan.quote:
        doubled = f"replace({doubled}, {escape}, {escape} || {escape})"
    doubled = f"replace({doubled}, {quote}, {escape} || {quote})"
    needs = [f"contains({item}, {one})" for one in (_quoted(plan.delimiter), quote)]
    needs += [f"contains({item}, chr({ord(c)}))" for c in "\n\r"]
    needs.append(f"{item} = {_quoted(plan.null)}")
    if single:
        needs.append(f"{item} = {_quoted(chr(92) + '.')}")
    return f"CASE WHEN {' OR '.join(needs)} THEN {quote} || {doubled} || {quote} ELSE {item} END"


class Lines:
    """Makes lines of text or CSV."""

    def __init__(self, plan: cursor_plans.CopyToPlan, desc: RelationDesc) -> None:
        self._plan = plan
        self._desc = desc
        items = []
        for text in Texts(desc).items:
            spelled = (
                _escaped(text, plan.delimiter)
                if plan.format == "text"
                else _csv_quoted(text, plan, single=desc.arity == 1)
            )
            items.append(f"coalesce({spelled}, {_quoted(plan.null)})")
        delimiter = _quoted(plan.delimiter)
        line = f" || {delimiter} || ".join(items) if items else "''"
        # Keep the rows' order: a query's ORDER BY is an order of the file's lines.
        self._query = f"SELECT {line} || chr(10) AS line FROM rows ORDER BY n"

    def header(self) -> bytes:
        """The header line; empty where none is asked for."""
        if not self._plan.header:
            return b""
        if self._plan.format == "text":
            names = [n.replace("\\", "\\\\").replace("\t", "\\t") for n in self._desc.names]
            return (self._plan.delimiter.join(names) + "\n").encode()
        quote = self._plan.quote
        special = (self._plan.delimiter, quote, "\n", "\r")
        names = [
            f"{quote}{n.replace(quote, self._plan.escape + quote)}{quote}"
            if any(c in n for c in special)
            else n
            for n in self._desc.names
        ]
        return (self._plan.delimiter.join(names) + "\n").encode()

    def of(self, rows: pa.Table) -> bytes:
        """The lines of some rows."""
        named = rows.rename_columns([f"c{i}" for i in range(rows.num_columns)])
        named = named.append_column("n", pa.array(range(rows.num_rows), pa.int64()))
        duck = locked_connection()
        try:
            with given(duck, "rows", named):
                lines = duck.sql(self._query).to_arrow_table().column("line")
        finally:
            duck.close()
        # An Arrow string array's data buffer holds all lines one after the other.
        return b"".join(_data(chunk) for chunk in lines.chunks)


def _data(chunk: pa.Array) -> bytes:
    array = chunk.cast(pa.large_string())
    _, offsets, data = array.buffers()
    if data is None:
        return b""
    at = pa.Array.from_buffers(pa.int64(), array.offset + len(array) + 1, [None, offsets])
    first, last = at[array.offset].as_py(), at[len(at) - 1].as_py()
    found: bytes = data.slice(first, last - first).to_pybytes()
    return found


class CopyOut:
    """The bytes of one COPY … TO STDOUT as a stream; can be iterated once.

    Attributes:
        rows: how many rows were returned so far.
    """

    def __init__(
        self,
        plan: cursor_plans.CopyToPlan,
        desc: RelationDesc,
        tables: Iterator[pa.Table],
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.rows = 0
        self._close = close
        self._plan = plan
        self._desc = desc
        self._tables = tables

    def close(self) -> None:
        """End the source of the rows. Idempotent."""
        self._close()

    def __iter__(self) -> Iterator[bytes]:
        lines = Lines(self._plan, self._desc)
        if header := lines.header():
            yield header
        for table in self._tables:
            for part in pieces(table, BATCH_ROWS, BATCH_BYTES):
                self.rows += part.num_rows
                yield lines.of(part)


# --- files ----------------------------------------------------------------------------------------


def _write(
    plan: cursor_plans.CopyToPlan, desc: RelationDesc, rows: pa.Table, sink: io.BufferedIOBase
) -> None:
    if plan.format == "parquet":
        if len(set(desc.names)) < len(desc.names):
            raise InvalidParameter("COPY TO a Parquet file needs distinct column names")
        pq.write_table(rows, sink)
        return
    for data in CopyOut(plan, desc, iter([rows])):
        sink.write(data)


def _is_url(path: str) -> bool:
    return "://" in path and not path.startswith("file://")


def check_allowed(path: str, paths: CopyPaths) -> None:
    """Check, before any row is computed, that ``path`` may be written.

    Raises:
        CopyDenied: it may not.
    """
    if _is_url(path):
        paths.check_url(path)
    else:
        paths.target(path)


def to_files(
    plan: cursor_plans.CopyToPlan,
    path: str,
    desc: RelationDesc,
    rows: pa.Table,
    paths: CopyPaths = ANYWHERE,
) -> int:
    """Write rows to a file, or to objects under a Blob store's URL; the number of rows.

    Raises:
        CopyDenied: ``paths`` do not allow it.
        InvalidParameter: the file's folder does not exist or cannot be written, or the URL's prefix is not empty.
    """
    check_allowed(path, paths)
    if _is_url(path):
        _to_store(plan, path, desc, rows)
        return int(rows.num_rows)
    target = paths.target(path)
    try:
        if not target.parent.is_dir() or target.is_dir():
            why = "Is a directory" if target.is_dir() else "No such directory"
            raise InvalidParameter(
                f'could not open file "{path}" for writing: {why}', sqlstate="58P01"
            )
        _to_file(plan, target, desc, rows)
    except OSError as failure:
        denied = isinstance(failure, PermissionError)
        raise InvalidParameter(
            f'could not open file "{path}" for writing: {failure.strerror or failure}',
            sqlstate="42501" if denied else "58030",
        ) from failure
    return int(rows.num_rows)


def _to_file(
    plan: cursor_plans.CopyToPlan, target: Path, desc: RelationDesc, rows: pa.Table
) -> None:
    """Write a file atomically: through links, keeping its mode. A pipe or a device is written directly."""
    target = target.resolve()
    if target.exists() and not target.is_file():
        with target.open("wb") as sink:
            _write(plan, desc, rows, sink)
        return
    written = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        with written.open("wb") as sink:
            _write(plan, desc, rows, sink)
            sink.flush()
            os.fsync(sink.fileno())
        if target.exists():
            written.chmod(stat.S_IMODE(target.stat().st_mode))
        written.replace(target)
    except BaseException:
        written.unlink(missing_ok=True)
        raise


def _to_store(plan: cursor_plans.CopyToPlan, url: str, desc: RelationDesc, rows: pa.Table) -> None:
    blob = default_registry().open_blob(url)
    try:
        if next(iter(blob.list_keys_and_metadata("")), None) is not None:
            raise InvalidParameter(
                f"{url} is not empty", hint="Name a prefix that holds nothing yet."
            )
        parts = pieces(rows, FILE_ROWS, FILE_BYTES) if rows.num_rows else [rows]
        for number, part in enumerate(parts):
            sink = io.BytesIO()
            _write(plan, desc, part, sink)
            blob.set(f"part-{number:04}.{plan.format}", sink.getvalue())
    finally:
        blob.close()
