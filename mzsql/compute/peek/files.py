"""One-shot queries by DuckDB over stored parts, for inputs that are too large to be held in memory but not for this
machine.

Promise: DuckDB reads parts that are files itself, by column and row group. Of other parts the needed columns are
copied once, as they arrive, into a database on disk. A query's working memory is bounded by its share (`Memory`),
beyond which it spills to disk; rows come piece by piece, and the work ends with the statement. Parts stay leased
while the query runs. Its database is its own, can read exactly these files, and is locked: no statement can reach
anything else. Since opening a database costs as much as a small query, it is kept for later queries over the same
files with as much memory (`mzsql.compute.peek.kept`).

DuckDB verifies no checksums. So before it reads columns of a part, their stored bytes are compared with persist's
checksums, once for each version of a file (by inode, size and modification time). Damage that existed when a process
first read a part, or came by a write, raises `CorruptPart`; a disk that returns other bytes at a later read of the
same file is not noticed. A missing part raises `MissingPart`.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

import duckdb
import msgspec
import pyarrow as pa
from sqlglot import expressions as exp

from mzsql.compute.engines.pieces import pieces
from mzsql.compute.engines.recursion import LoopText
from mzsql.compute.peek.kept import Databases, Kind
from mzsql.compute.replica.step.statistics import Footers, known_of
from mzsql.expr.engines import is_wide, locked_connection
from mzsql.persist import DIFF_COLUMN, TIME_COLUMN, PartRef, until
from mzsql.render.rewrites.lean import Relation
from mzsql.repr.frontier import Timestamp
from mzsql.repr.interrupt import Interrupt, current

#: Least memory of a query, in bytes.
LEAST_BYTES = 256 * 1024 * 1024
#: Most memory of a query whose rows are written as they come: what it aggregates may be as large as a table, and
#: belongs on disk.
FLOWING_BYTES = 320 * 1024 * 1024
#: For how many files it is remembered which columns were compared with their checksums.
_FILES = 100_000
#: Characters that make DuckDB take a path for a glob pattern.
_PATTERN = frozenset("*?[")

#: Reads some columns of an input, not consolidated: c0 …, [mz_error], mz_diff.
Reader: TypeAlias = Callable[[Sequence[str]], pa.RecordBatchReader]


class Source:
    """One input of a query; it keeps its parts leased.

    Args:
        schema: the columns c0 …, [mz_error], mz_diff.
        as_of: the time of the query.
        parts: the input's parts at that time.
        more: further updates, in the same schema.
        reader: reads the parts if some are not files.
    """

    def __init__(
        self,
        schema: pa.Schema,
        as_of: Timestamp,
        parts: Sequence[PartRef],
        more: Sequence[pa.Table],
        reader: Reader | None,
    ) -> None:
        self.schema = schema
        self.as_of = as_of
        self.parts = [part for part in parts if part.time_min <= as_of]
        self.more = list(more)
        self.reader = reader

    @property
    def rows(self) -> int:
        """Upper bound on its number of updates."""
        stored = sum(part.rows for part in self.parts)
        return stored + sum(int(one.num_rows) for one in self.more)


class Prepared(msgspec.Struct, frozen=True):
    """A statement over ``snap_…`` relations.

    Attributes:
        text: DuckDB's SQL.
        loops: recursions to run before it.
        reads: the columns that it reads of each relation; all columns of a relation that is absent.
    """

    text: str
    loops: tuple[LoopText, ...]
    reads: Mapping[str, frozenset[str]]


class Memory:
    """Shares out the memory of a process's queries: each gets half of what the others have left, and at least
    `LEAST_BYTES`.
    """

    def __init__(self, total: int | None = None) -> None:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        self._left = machine // 2 if total is None else total
        self._lock = threading.Lock()

    @contextmanager
    def share(self, most: int | None = None) -> Iterator[int]:
        """Yield the caller's share in bytes, at most `most`; it is given back after the block."""
        with self._lock:
            mine = max(LEAST_BYTES, self._left // 2)
            if most is not None:
                mine = min(mine, most)
            self._left -= mine
        try:
            yield mine
        finally:
            with self._lock:
                self._left += mine


class _Compared:
    """Remembers which columns of which files were compared with their checksums. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[tuple[int, ...], frozenset[str]]] = OrderedDict()

    def compare(self, part: PartRef, path: str, columns: frozenset[str]) -> None:
        """Compare columns that were not compared yet.

        Raises:
            MissingPart, CorruptPart, LocationError: as `PartRef.verify`.
        """
        found = _identity(path)
        with self._lock:
            identity, known = self._known.get(path, (found, frozenset()))
        if identity != found:
            known = frozenset()
        if found and columns <= known:
            return
        part.verify(sorted(columns - known))
        with self._lock:
            self._known[path] = (found, known | columns)
            if len(self._known) > _FILES:
                self._known.popitem(last=False)

    def forget(self, path: str) -> None:
        """Forget what is known of a file that may have been damaged since."""
        with self._lock:
            self._known.pop(path, None)


def _identity(path: str) -> tuple[int, ...]:
    """Values that change when a file is replaced or written; empty if it does not exist."""
    try:
        found = Path(path).stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


class FilePeeks:
    """Runs one-shot queries over parts in this process. Thread-safe.

    Attributes:
        footers: caches what parts' footers say.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory = memory or Memory()
        self._compared = _Compared()
        self._databases = Databases()
        self.footers = Footers()

    def close(self) -> None:
        """Close the idle databases; running queries go on. Idempotent."""
        self._databases.close()

    def known(self, source: Source) -> Relation:
        """What is known of an input without reading it; of one that is inline, by its rows.

        Raises:
            MissingPart, CorruptPart, LocationError: as `PartRef.columns` and `PartRef.to_arrow`.
        """
        stored = [self.footers.columns(part) for part in source.parts if not part.inline]
        return known_of(source.schema, source.rows, stored, [*_inline(source), *source.more])

    def rows(
        self, prepared: Prepared, sources: Mapping[str, Source], most: int | None = None
    ) -> Iterator[pa.Table]:
        """The statement's result, piece by piece.

        Args:
            prepared: the statement.
            sources: its inputs by relation name.
            most: most bytes of memory.

        Raises:
            MissingPart, CorruptPart, LocationError: from reading the inputs.
            DataError: a recursion reached a limit that is an error.
            QueryCanceled: this thread's statement was canceled, or its deadline passed.
        """
        interrupt = current()
        interrupt.check()
        inputs = {name: _Input(name, one, prepared.reads) for name, one in sources.items()}
        # Sorted, so that the database's kind does not depend on the order of the inputs.
        files = tuple(sorted(path for one in inputs.values() for path in one.files))
        with self._memory.share(most) as size:
            kind = Kind(
                files,
                size >> 20,
                wide=is_wide(prepared.text),
                on_disk=any(one.is_copied for one in inputs.values()),
            )
            with self._databases.connection(kind) as connection:
                try:
                    for one in inputs.values():
                        one.provide(connection, self._compared, interrupt)
                    yield from pieces(connection, prepared.text, prepared.loops, interrupt)
                except duckdb.Error:
                    # DuckDB's error may come from a part that is damaged or gone: check, and raise that instead.
                    for one in inputs.values():
                        one.compare_anew(self._compared)
                    raise


class _Input:
    """Provides an input's columns to DuckDB."""

    def __init__(self, name: str, source: Source, reads: Mapping[str, frozenset[str]]) -> None:
        self._name = name
        self._source = source
        wanted = reads.get(name)
        names = source.schema.names
        kept = [one for one in names if wanted is None or one in wanted]
        # A statement that reads no column still needs the number of rows.
        self._columns = kept or [DIFF_COLUMN]
        paths = {part: _path(part) for part in source.parts if not part.inline}
        self.is_copied = None in paths.values()
        #: the files that DuckDB reads, by path
        self.files: dict[str, PartRef] = {}
        if not self.is_copied:
            self.files = {path: part for part, path in paths.items() if path is not None}

    def provide(
        self, connection: duckdb.DuckDBPyConnection, compared: _Compared, interrupt: Interrupt
    ) -> None:
        """Create the input's relation on a connection."""
        tables = list(self._source.more)
        if self.is_copied:
            assert self._source.reader is not None
            _copy(connection, f"{self._name}_copy", self._source.reader(self._columns), interrupt)
        else:
            tables += _inline(self._source)
            for path, part in self.files.items():
                interrupt.check()
                compared.compare(part, path, self._read_of(part))
        queries = [f'SELECT {self._items()} FROM "{self._name}_copy"'] if self.is_copied else []
        queries += self._of_files()
        for place, table in enumerate(tables):
            connection.register(f"{self._name}_{place}", table)
            queries.append(f'SELECT {self._items()} FROM "{self._name}_{place}"')
        if not queries:
            connection.register(f"{self._name}_none", self._source.schema.empty_table())
            queries.append(f'SELECT {self._items()} FROM "{self._name}_none"')
        connection.execute(
            f'CREATE TEMPORARY VIEW "{self._name}" AS ' + " UNION ALL ".join(queries)
        )

    def compare_anew(self, compared: _Compared) -> None:
        """Verify the files again.

        Raises:
            MissingPart, CorruptPart, LocationError: as `PartRef.verify`.
        """
        for path, part in self.files.items():
            compared.forget(path)
            compared.compare(part, path, self._read_of(part))

    def _read_of(self, part: PartRef) -> frozenset[str]:
        late = part.time_max > self._source.as_of
        return frozenset([*self._columns, TIME_COLUMN] if late else self._columns)

    def _of_files(self) -> Iterator[str]:
        """Queries over the files. Times are compared only in files that have updates after the query's time."""
        for late in (False, True):
            of = [
                exp.Literal.string(path).sql("duckdb")
                for path, part in self.files.items()
                if (part.time_max > self._source.as_of) == late
            ]
            if of:
                where = f' WHERE "{TIME_COLUMN}" <= {self._source.as_of}' if late else ""
                yield f"SELECT {self._items()} FROM read_parquet([{', '.join(of)}]){where}"

    def _items(self) -> str:
        """The select list: each column cast to the type that DuckDB has for its Arrow type, which is no work if it has
        that type already.
        """
        schema = self._source.schema
        return ", ".join(
            f'CAST("{name}" AS {_type_name(schema.field(name).type)}) AS "{name}"'
            for name in self._columns
        )


@lru_cache(maxsize=4096)
def _type_name(typ: pa.DataType) -> str:
    """DuckDB's name for an Arrow type."""
    with locked_connection() as connection:
        given = pa.table({"x": pa.array([], typ)})
        return str(connection.from_arrow(given).types[0])


def _path(part: PartRef) -> str | None:
    """The path of a part that is a file which DuckDB can be given by name; else None."""
    url = part.spark_path
    if url is None or _PATTERN & set(url):
        return None
    if url.startswith("/"):
        return url
    split = urlsplit(url)
    return unquote(split.path) if split.scheme == "file" else None


def _inline(source: Source) -> list[pa.Table]:
    """The updates of inline parts."""
    found = []
    for part in source.parts:
        if part.inline:
            rows = part.to_arrow()
            if part.time_max > source.as_of:
                rows = until(rows, source.as_of)
            found.append(rows.select(source.schema.names).cast(source.schema))
    return [pa.concat_tables(found)] if found else []


def _copy(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    reader: pa.RecordBatchReader,
    interrupt: Interrupt,
) -> None:
    """Copy rows into a table. An error of their reader is raised unchanged, instead of DuckDB's error about it."""
    failures: list[BaseException] = []

    def watched() -> Iterator[pa.RecordBatch]:
        try:
            for batch in reader:
                interrupt.check()
                yield batch
        except BaseException as failure:
            failures.append(failure)
            raise

    given = pa.RecordBatchReader.from_batches(reader.schema, watched())
    connection.register("mz_copied", given)
    try:
        with interrupt.on_interrupt(connection.interrupt):
            connection.execute(f'CREATE TABLE "{name}" AS SELECT * FROM mz_copied')
    except BaseException:
        if failures:
            raise failures[0] from None
        interrupt.check()
        raise
    finally:
        connection.unregister("mz_copied")
