"""The engines: what each session must be set to, and how an AST becomes its text.

Promise: with these settings a spelling means the same everywhere. Times are UTC, decimals keep their digits, overflows of what is not
spelled with care fail instead of wrapping.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import duckdb
from sqlglot import expressions as exp
from sqlglot.generator import Generator
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.generators.spark import SparkGenerator

from mzsql.expr.functions.table import Engine
from mzsql.persist import duck
from mzsql.repr.errors import SqlError, lacking, out_of_memory
from mzsql.repr.garbage import undisturbed
from mzsql.repr.interrupt import check_for_interrupts

#: What one connection on which a user's statement runs may have in memory.
MEMORY_BYTES = 4 << 30

#: What a Spark session needs for right answers, beside what makes steps cheap.
SPARK_STEP_SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "spark.sql.ansi.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.decimalOperations.allowPrecisionLoss": "false",
        "spark.sql.caseSensitive": "true",
        "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    }
)


class _SparkText(SparkGenerator):
    """Writes for Spark as long as the caller waits for it."""

    def identifier_sql(self, expression: exp.Identifier) -> str:
        check_for_interrupts()
        return super().identifier_sql(expression)


class _DuckDbText(DuckDBGenerator):
    """Writes for DuckDB as long as the caller waits for it."""

    def identifier_sql(self, expression: exp.Identifier) -> str:
        check_for_interrupts()
        return super().identifier_sql(expression)


_WRITERS: Mapping[Engine, tuple[type[Generator], str]] = MappingProxyType(
    {Engine.SPARK: (_SparkText, "spark"), Engine.DUCKDB: (_DuckDbText, "duckdb")}
)

#: A statement of more characters than this is a wide one.
_WIDE_TEXT = 128 * 1024
#: How the database of a wide statement is set: without the passes of DuckDB's optimizer that take the square of the number of expressions,
#: seconds for two thousand columns. What they find (parts that are computed twice, projections that could be put elsewhere) is worth
#: less than that in a statement of so many.
WIDE_SETTINGS: Mapping[str, str] = MappingProxyType(
    {"disabled_optimizers": "common_subexpressions,projection_placement"}
)

# sqlglot logs a line for every hint that DuckDB does not have.
logging.getLogger("sqlglot").setLevel(logging.ERROR)


@undisturbed()
def to_sql(ast: exp.Expression, engine: Engine) -> str:
    """The statement's or expression's text, every identifier quoted."""
    writer, dialect = _WRITERS[engine]
    return writer(dialect=dialect, identify=True, comments=False).generate(ast)


def is_wide(statement: str) -> bool:
    """Whether a statement has so many expressions that it belongs on a database with `WIDE_SETTINGS`."""
    return len(statement) > _WIDE_TEXT


def duckdb_connection(
    path: str = ":memory:", settings: Mapping[str, str] = MappingProxyType({})
) -> duckdb.DuckDBPyConnection:
    """A DuckDB connection with the settings that spellings rely on, and others; it loads nothing from elsewhere.

    It reads and writes what files it is told to, so nothing of a user's runs on it: that is what `locked_connection` is for.
    """
    return duck.opened(path, {"preserve_insertion_order": "false", **settings})


def locked_connection(
    path: str = ":memory:",
    settings: Mapping[str, str] = MappingProxyType({}),
    files: Sequence[str] = (),
) -> duckdb.DuckDBPyConnection:
    """A connection on which a user's statement may run: the barrier behind the resolution of names.

    Whatever is said on it, or on its cursors, reaches no other file, database or extension, and changes no setting. What it needs beyond
    its memory is in ``temp_directory``, by default in one of this process's own.

    Args:
        path: the database; it stays open to it.
        settings: others than the usual ones.
        files: paths that it may read.
    """
    given = {"memory_limit": memory_limit(), **settings}
    if "temp_directory" not in given:
        # Of a directory that is gone DuckDB would make one that everybody may look into; below one that is gone it makes none.
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


def no_memory(failure: BaseException) -> bool:
    """Whether DuckDB has failed since there is too much at once: for its memory, or for an array of Arrow's."""
    return isinstance(failure, duckdb.OutOfMemoryException) or (
        isinstance(failure, duckdb.InvalidInputException)
        and "maximum total string size" in str(failure)
    )


def shortage(failure: BaseException) -> SqlError | None:
    """What a person gets where DuckDB or the machine had nothing left to give; None of any other failure."""
    return out_of_memory() if no_memory(failure) else lacking(failure)


@functools.cache
def memory_limit() -> str:
    """What one connection may have: `MEMORY_BYTES`, or less on a small machine."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{min(MEMORY_BYTES, machine * 3 // 5) >> 20}MiB"


_scratch: dict[int, str] = {}
_scratch_lock = threading.Lock()


def scratch_directory() -> str:
    """A directory of this process's own, that nobody else may look into; it goes with the process.

    Another one where somebody has removed it, as what clears a machine's temporary files does after some days.
    """
    with _scratch_lock:
        mine = _scratch.get(os.getpid())
        if mine is None or not Path(mine).is_dir():
            mine = tempfile.mkdtemp(prefix="mzsql-duckdb-")
            _scratch[os.getpid()] = mine
            atexit.register(_remove_scratch, os.getpid(), mine)
        return mine


def scratch_path() -> Path:
    """As `scratch_directory`."""
    return Path(scratch_directory())


def _remove_scratch(owner: int, directory: str) -> None:
    # A fork's exit would otherwise take the parent's.
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)
