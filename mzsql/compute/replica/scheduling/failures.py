"""The text of a dataflow's failure, for its status.

Promise: if the machine has run out of memory or disk space, the text begins with that and with what to do, whichever
library has met it (DuckDB, Arrow, Spark, the operating system). Other errors are given as they are. The dataflow is
retried in any case.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

from mzsql.expr.engines import no_memory
from mzsql.persist import ExpiredHandle, SinceViolation
from mzsql.repr.errors import Fenced

#: What libraries other than the operating system say when there is no memory.
_NO_MEMORY = ("can't start new thread", "java.lang.OutOfMemoryError", "Cannot allocate memory")
_NO_SPACE = ("No space left on device", "Disk quota exceeded", "max_temp_directory_size")
_LIMITS = "mz_internal.mz_cluster_replica_metrics has what it takes and may take"


def told_of(error: BaseException) -> str:
    """The error text of a dataflow's status."""
    text = f"{type(error).__name__}: {error}"
    chain = tuple(_chain(error))
    if any(_is_space(one) for one in chain):
        return f"no space left for the replica's process ({_LIMITS}); free some, it is tried again: {text}"
    if any(_is_memory(one) for one in chain):
        return f"the replica's process is out of memory ({_LIMITS}); give it more, it is tried again: {text}"
    return text


def is_lost(error: BaseException, runs_here: Callable[[], bool]) -> bool:
    """Whether a dataflow that failed with the error cannot go on where it stands, but can once it is opened again.

    What it reads is not readable any more from where it is (its process was stopped for longer than others hold history for
    it, or another process that ran the replica brought its arrangements further), a lease of its own has lapsed, or such a
    process has taken its hold on an index.

    Args:
        error: the failure.
        runs_here: whether this process is the one to run the replica. If it is not, the hold is left to the one that is.
    """
    if isinstance(error, Fenced):
        return runs_here()
    return isinstance(error, SinceViolation | ExpiredHandle)


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
