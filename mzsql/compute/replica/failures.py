"""What is told of a dataflow's failure, for a person.

Promise: where the machine has nothing left to give, memory or space on a disk, that is said first, whoever has met it (DuckDB, Arrow,
Spark, the operating system), with what to do; the dataflow is tried again in any case. Anything else is told as it is.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from mzsql.expr.engines import no_memory

#: What others than the operating system say where there is none.
_NO_MEMORY = ("can't start new thread", "java.lang.OutOfMemoryError", "Cannot allocate memory")
_NO_SPACE = ("No space left on device", "Disk quota exceeded", "max_temp_directory_size")
_LIMITS = "mz_internal.mz_cluster_replica_metrics has what it takes and may take"


def told_of(error: BaseException) -> str:
    """The text of a dataflow's status."""
    text = f"{type(error).__name__}: {error}"
    chain = tuple(_chain(error))
    if any(_is_space(one) for one in chain):
        return f"no space left for the replica's process ({_LIMITS}); free some, it is tried again: {text}"
    if any(_is_memory(one) for one in chain):
        return f"the replica's process is out of memory ({_LIMITS}); give it more, it is tried again: {text}"
    return text


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_space(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return any(said in str(error) for said in _NO_SPACE)


def _is_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError) or no_memory(error):
        return True
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return any(said in str(error) for said in _NO_MEMORY)
