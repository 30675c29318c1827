"""Uploads of parts, encoded and written on threads while the call collects the rest of its batch.

Promise: at most `Settings.part_uploads` parts of a call are outstanding; the next one waits, which bounds memory and
slows down a caller that produces updates faster than they can be written. A client without threads writes each at
once, in order. Source: Materialize's persist design, "one outstanding batch write a handle"; Materialize allows two
part uploads per batch.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TypeVar

from mzsql.persist.context import Context

T = TypeVar("T")


class Uploads:
    """The outstanding part writes of one call. For one thread at a time."""

    def __init__(self, context: Context) -> None:
        self._limit = max(1, context.settings.part_uploads)
        self._threads = context.threads
        self._pool: ThreadPoolExecutor | None = None
        self._outstanding: set[Future[object]] = set()

    def submit(self, write: Callable[[], T]) -> Callable[[], T]:
        """Start ``write()`` as soon as fewer than the limit are outstanding; return a function that waits for it and
        returns its result.

        If an earlier write has already failed, its error is raised instead, because the batch has failed.
        """
        if not self._threads:
            result = write()
            return lambda: result
        while len(self._outstanding) >= self._limit:
            self._settle()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._limit, thread_name_prefix="mzsql-persist-upload")
        future: Future[T] = self._pool.submit(write)
        self._outstanding.add(future)  # type: ignore[arg-type]
        return future.result

    def _settle(self) -> None:
        done, self._outstanding = wait(self._outstanding, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()

    def close(self) -> None:
        """Wait until all writes have ended, whether they failed or not. Idempotent."""
        if self._pool is not None:
            self._pool.shutdown(wait=True)
        self._outstanding = set()
