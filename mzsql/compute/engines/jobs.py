"""Names Spark's jobs: a job group, a description and a scheduler pool for what one thread runs.

Promise: jobs started inside `named_jobs` carry the ids of the object and the nodes wherever Spark shows jobs, and
are counted. Classic sessions have groups and pools for each thread; a Spark Connect session has only tags, and its
jobs are not counted (the count is 0). Jobs that are not wanted any more are cancelled.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from mzsql.repr.ids import GlobalId
from mzsql.threads import PROCESS, Supervised

_RUNS = iter(range(1, 2**62))
_RUNS_LOCK = threading.Lock()
_LOOK_SECONDS = 0.2
#: Of how many checks one reports progress.
_PROGRESS_LOOKS = 5


class JobCount:
    """The number of jobs that ran inside a `named_jobs` block, to be read after it; and a way to cancel them from
    another thread.
    """

    jobs: int = 0

    def __init__(
        self,
        cancel: Callable[[], object],
        tasks: Callable[[], tuple[int, int] | None] = lambda: None,
    ) -> None:
        self._cancel = cancel
        self._tasks = tasks

    def tasks(self) -> tuple[int, int] | None:
        """Completed tasks, and all tasks, of the stages that run now; None if unknown. From any thread."""
        return self._tasks()

    def cancel(self) -> None:
        """Cancel the jobs that run inside the block now. Idempotent."""
        self._cancel()


@contextlib.contextmanager
def cancelled_when(
    unwanted: Callable[[], bool], jobs: JobCount, progress: Callable[[], None] | None = None
) -> Iterator[None]:
    """Cancel the jobs of a block, which then fails, as soon as their result is unwanted. Checks every `_LOOK_SECONDS`,
    and calls `progress` every `_PROGRESS_LOOKS` checks.
    """
    ended = threading.Event()

    def look(thread: Supervised) -> None:
        # Cancelling is repeated, because between two jobs there is nothing to cancel.
        looks = 0
        while not ended.wait(_LOOK_SECONDS):
            looks += 1
            if unwanted():
                jobs.cancel()
            elif progress is not None and looks % _PROGRESS_LOOKS == 0:
                progress()
            thread.well()

    watcher = PROCESS.start("unwanted-jobs", look, thread_name="mzsql-unwanted-jobs")
    try:
        yield
    finally:
        ended.set()
        watcher.stop()
        watcher.join()


def describe(gid: GlobalId, lir_ids: Sequence[int], what: str) -> str:
    """The description of a job, such as ``mz u3 lir 5: hydrate``."""
    return f"mz {gid} lir {','.join(map(str, lir_ids))}: {what}"


def _tasks(context: SparkContext, group: str) -> tuple[int, int] | None:
    """Completed tasks, and all tasks, of the running stages of a group's jobs."""
    tracker = context.statusTracker()
    done = total = 0
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        if job is None or job.status != "RUNNING":
            continue
        for stage_id in job.stageIds:
            stage = tracker.getStageInfo(stage_id)
            if stage is not None and stage.numActiveTasks:
                done, total = done + stage.numCompletedTasks, total + stage.numTasks
    return (done, total) if total else None


@contextlib.contextmanager
def named_jobs(
    spark: SparkSession, gid: GlobalId, lir_ids: Sequence[int], what: str, pool: str
) -> Iterator[JobCount]:
    """Name the jobs that this thread starts inside the block, and count them."""
    with _RUNS_LOCK:
        group = f"mz {gid} {next(_RUNS)}"
    try:
        context = spark.sparkContext
    except (
        PySparkException,
        AttributeError,
    ):  # a session of Spark Connect has no context, and says so either way
        tag = f"mz-{gid}"
        spark.addTag(tag)
        count = JobCount(lambda: spark.interruptTag(tag))
        try:
            yield count
        finally:
            spark.removeTag(tag)
        return
    context.setJobGroup(group, describe(gid, lir_ids, what))
    context.setLocalProperty("spark.scheduler.pool", pool)
    count = JobCount(lambda: context.cancelJobGroup(group), lambda: _tasks(context, group))
    try:
        yield count
    finally:
        count.jobs = len(context.statusTracker().getJobIdsForGroup(group))
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.scheduler.pool"):
            # None removes a local property, although PySpark's annotation does not say so.
            context.setLocalProperty(name, None)
