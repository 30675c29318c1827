"""The engines: the settings every session needs, and how an AST becomes SQL text.

Promise: with these settings a spelling means the same everywhere. Times are UTC, decimals keep their digits, and an
overflow that the spelling does not handle fails instead of wrapping.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import duckdb
from sqlglot import expressions as exp
from sqlglot.generator import Generator
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.generators.spark import SparkGenerator

from mzsql.expr.functions.table import Engine
from mzsql.expr.nodes import is_tree
from mzsql.persist import duck
from mzsql.repr.errors import InternalError, SqlError, lacking, out_of_memory
from mzsql.repr.garbage import undisturbed
from mzsql.repr.interrupt import check_for_interrupts

#: The memory limit of a connection that runs users' statements.
MEMORY_BYTES = 4 << 30

#: The settings a Spark session needs for correct results, and those that make steps cheap.
SPARK_STEP_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    }
)


class _Writer(Generator):
    """sqlglot's generator, interruptible while it writes. It counts the numbers that it writes as literals."""

    def __init__(self, **given: Any) -> None:
        super().__init__(identify=True, comments=False, **given)
        self.numbers: Counter[str] = Counter()

    def identifier_sql(self, expression: exp.Identifier) -> str:
        check_for_interrupts()
        return super().identifier_sql(expression)

    def literal_sql(self, expression: exp.Literal) -> str:
        if not expression.is_string:
            self.numbers[expression.this] += 1
        return super().literal_sql(expression)


class _SparkText(_Writer, SparkGenerator):
    """Writes SQL for Spark."""


class _DuckDbText(_Writer, DuckDBGenerator):
    """Writes SQL for DuckDB."""

    def datatype_sql(self, expression: exp.DataType) -> str:
        """The type's name. Cached: sqlglot builds a tree of every type that it compares this one with, a tenth of all writing."""
        if expression.expressions or expression.args.get("values"):
            return super().datatype_sql(expression)
        known = _PLAIN_TYPES.get(expression.this)
        if known is None:
            known = super().datatype_sql(expression)
            if set(expression.args) <= {"this", "expressions"}:
                _PLAIN_TYPES[expression.this] = known
        return known


#: What DuckDB calls the types that have no parameters.
_PLAIN_TYPES: dict[object, str] = {}

_WRITERS: Mapping[Engine, tuple[type[_Writer], str]] = MappingProxyType(
    {Engine.SPARK: (_SparkText, "spark"), Engine.DUCKDB: (_DuckDbText, "duckdb")}
)

#: A statement with more characters than this is wide.
_WIDE_TEXT = 128 * 1024
#: The settings for wide statements: without those optimizer passes of DuckDB that are quadratic in the number of
#: expressions, and take seconds for two thousand columns. What the passes find (common subexpressions, better places
#: for projections) is worth less than that here.
WIDE_SETTINGS: Mapping[str, str] = MappingProxyType(
    {"disabled_optimizers": "common_subexpressions,projection_placement"}
)

# sqlglot logs a warning for every hint that DuckDB lacks.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


@undisturbed()
def to_sql(ast: exp.Expression, engine: Engine) -> str:
    """The SQL text of a statement or expression, with every identifier quoted."""
    return _written(ast, engine)[0]


@undisturbed()
def to_sql_with_numbers(ast: exp.Expression, engine: Engine) -> tuple[str, Mapping[str, int]]:
    """As `to_sql`, and how often each number was written as a literal."""
    return _written(ast, engine)


def _written(ast: exp.Expression, engine: Engine) -> tuple[str, Mapping[str, int]]:
    writer, dialect = _WRITERS[engine]
    made = writer(dialect=dialect)
    # Writing for Spark changes the tree, so it gets a copy. For DuckDB sqlglot changes only nodes of kinds that are not rendered, and the
    # copy would take as long as writing does. But it writes some nodes by what they stand in, which a node that was put into a second
    # place does not know of the first; the copy does.
    copied = engine is not Engine.DUCKDB or not is_tree(ast)
    return made.generate(ast, copy=copied), made.numbers


def is_wide(statement: str) -> bool:
    """Whether a statement has so many expressions that it needs `WIDE_SETTINGS`; judged by its length."""
    return len(statement) > _WIDE_TEXT


def duckdb_connection(
    path: str = ":memory:", settings: Mapping[str, str] = MappingProxyType({})
) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with the settings that spellings rely on, and ``settings``; it loads no extension.

    It can read and write any file, so no user's statement may run on it; that is what `locked_connection` is for.
    """
    return duck.opened(path, {"preserve_insertion_order": "false", **settings})


def locked_connection(
    path: str = ":memory:",
    settings: Mapping[str, str] = MappingProxyType({}),
    files: Sequence[str] = (),
) -> duckdb.DuckDBPyConnection:
    """A connection on which a user's statement may run: the barrier behind name resolution.

    A statement on it, or on a cursor of it, reaches no other file, database or extension, and changes no setting. What
    exceeds its memory is spilled to ``temp_directory``, by default a directory of this process.

    Args:
        path: the database.
        settings: settings beside the usual ones.
        files: further paths that it may read.
    """
    given = {"memory_limit": memory_limit(), **settings}
    if "temp_directory" not in given:
        # DuckDB creates a missing spill directory readable to everybody, but no missing parent: so a removed scratch
        # directory is an error, not a leak.
        given["temp_directory"] = str(Path(scratch_directory()) / "spilled")
    connection = duckdb_connection(path, given)
    try:
        if files:
            paths = exp.Array(expressions=[exp.Literal.string(path) for path in files])
            connection.execute(f"SET allowed_paths = {to_sql(paths, Engine.DUCKDB)}")
        for locked in ("SET enable_external_access = false", "SET lock_configuration = true"):
            connection.execute(locked)
    except BaseException:
        connection.close()
        raise
    return connection


class LaterConnection:
    """A `locked_connection` that is opened when it is first needed: many processes never need it, and opening one takes longer
    than planning most statements. For one thread at a time.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._connection: duckdb.DuckDBPyConnection | None = None
        self._closed = False

    def opened(self) -> duckdb.DuckDBPyConnection:
        """The connection.

        Raises:
            InternalError: it was closed.
        """
        if self._closed:
            raise InternalError("what evaluates constants was closed")
        if self._connection is None:
            self._connection = locked_connection(settings=self._settings)
        return self._connection

    def close(self) -> None:
        """Close the connection; it cannot be opened any more. Idempotent."""
        self._closed = True
        if self._connection is not None:
            self._connection.close()


def no_memory(failure: BaseException) -> bool:
    """Whether DuckDB failed for want of memory, or because an Arrow array would be too large."""
    return isinstance(failure, duckdb.OutOfMemoryException) or (
        isinstance(failure, duckdb.InvalidInputException)
        and "maximum total string size" in str(failure)
    )


def shortage(failure: BaseException) -> SqlError | None:
    """The error for a user where DuckDB or the machine ran out of memory or threads; None for any other failure."""
    return out_of_memory() if no_memory(failure) else lacking(failure)


@functools.cache
def memory_limit() -> str:
    """The memory limit of a connection: `MEMORY_BYTES`, or less on a small machine."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{min(MEMORY_BYTES, machine * 3 // 5) >> 20}MiB"


_scratch: dict[int, str] = {}
_scratch_lock = threading.Lock()


def scratch_directory() -> str:
    """A directory private to this process, removed when the process ends.

    Created anew where somebody has removed it, as jobs that clear old temporary files do.
    """
    with _scratch_lock:
        mine = _scratch.get(os.getpid())
        if mine is None or not Path(mine).is_dir():
            mine = tempfile.mkdtemp(prefix="mzsql-duckdb-")
            _scratch[os.getpid()] = mine
            atexit.register(_remove_scratch, os.getpid(), mine)
        return mine


def scratch_path() -> Path:
    """`scratch_directory` as a `Path`."""
    return Path(scratch_directory())


def _remove_scratch(owner: int, directory: str) -> None:
    # A forked child must not remove its parent's directory.
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
