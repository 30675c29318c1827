"""What the names of files tell that Spark writes, while it does and afterwards."""

from __future__ import annotations

from collections.abc import Iterable

from mzsql.persist import WORKER_COLUMN
from mzsql.repr.errors import InternalError

#: Of a running write: the workers whose file is complete, and the bytes of all files by worker, None for files of none.
Files = tuple[frozenset[int], dict[int | None, int]]


def seen(files: Iterable[tuple[str, int]]) -> Files:
    """What files of these names and sizes tell."""
    complete, sizes = set(), dict[int | None, int]()
    for name, size in files:
        worker = worker_in(name)
        if name.endswith(".parquet"):
            sizes[worker] = sizes.get(worker, 0) + size
        if worker is not None and is_part(name):
            complete.add(worker)
    return frozenset(complete), sizes


def is_part(name: str) -> bool:
    """Whether a file is a complete part, and not one on its way or a marker."""
    last = name.rsplit("/", 1)[-1]
    return (
        last.endswith(".parquet") and not last.startswith((".", "_")) and "_temporary" not in name
    )


def worker_in(name: str) -> int | None:
    """The worker whose rows a file has; None for a file of none.

    Raises:
        InternalError: its rows are of no worker, although they should be.
    """
    for part in name.split("/"):
        if part.startswith(f"{WORKER_COLUMN}="):
            number = part.removeprefix(f"{WORKER_COLUMN}=")
            # Hive's name of a NULL partition, above all: a key's hash is never NULL, so the text that computes the
            # worker is wrong.
            if not number.isdigit():
                raise InternalError(f"a row of no worker was written to {name}")
            return int(number)
    return None
