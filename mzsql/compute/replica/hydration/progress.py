"""What a hydration by Spark says of itself while it runs: what it does, since when, and what each worker has put out.

Promise: `tell` may be called from any thread, at any time, and says only what is so. `cancel` ends the jobs that run at that moment,
and no others.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping

from mzsql.compute.engines.jobs import JobCount
from mzsql.compute.replica.hydration.report import HydrationReport


class Progress:
    """Of one attempt.

    Args:
        doing: takes what it does, and the node.
        report: takes what the nodes have put out.
    """

    def __init__(self, doing: Callable[[str, int | None], None], report: HydrationReport) -> None:
        self._doing = doing
        self._report = report
        #: what it does now, at which node and since when; the jobs that do it; and what each worker has put out: rows and bytes
        self._at: tuple[str, int, float] | None = None
        self._jobs: JobCount | None = None
        self._put_out: dict[int | None, tuple[int | None, int]] = {}

    def begin(self, what: str, lir_id: int) -> None:
        """It does something else from now on."""
        self._at = what, lir_id, time.monotonic()
        self._doing(what, lir_id)

    def anew(self) -> None:
        """A node begins: nothing is put out yet."""
        self._put_out = {}

    def seen(self, sizes: Mapping[int | None, int]) -> None:
        """Take the bytes of the files that a running write has made, by worker."""
        self._put_out = {worker: (None, size) for worker, size in sizes.items()}

    def add(self, worker: int | None, rows: int, size: int) -> None:
        """A worker has put out so many rows more, and bytes."""
        known, before = self._put_out.get(worker, (0, 0))
        self._put_out[worker] = (known or 0) + rows, before + size

    def tell(self) -> None:
        """Say what it does, for how long it has and how far that is. Called about once a second, beside the work."""
        at, jobs = self._at, self._jobs
        if at is None:
            return
        what, lir_id, began = at
        tasks = None if jobs is None else jobs.tasks()
        far = "" if tasks is None else f", {tasks[0]} of {tasks[1]} Spark tasks done"
        known = list(self._put_out.copy().values())
        rows, size = sum(one or 0 for one, _ in known), sum(one for _, one in known)
        far += f", {rows} rows" if rows else ""
        far += f", {size >> 10} KiB" if size else ""
        self._doing(f"{what} for {time.monotonic() - began:.0f} s{far}", lir_id)
        self._report.node_puts_out(lir_id, self._put_out.copy())

    def end(self, lir_id: int) -> None:
        """Say what a node has put out in the end, if anything was said of that."""
        if lir_id in self._report.put_out():
            self._report.node_puts_out(lir_id, self._put_out)

    @contextlib.contextmanager
    def cancellable(self, jobs: JobCount) -> Iterator[None]:
        """Within, these jobs are what `cancel` cancels."""
        self._jobs = jobs
        try:
            yield
        finally:
            self._jobs = None

    def cancel(self) -> None:
        """Cancel the jobs that run now, if any do. Idempotent."""
        jobs = self._jobs
        if jobs is not None:
            jobs.cancel()
