"""Materialized views kept up to date in this process: real shards, arrangements, lookups and steps, and no Spark to wait for.

Promise: within `in_process` every environment that is opened behaves as with ``step_engine = 'duckdb'``, with one thread for steps.
Trade-off: hydrations by Spark are what `--spark` (within `hydrated_by_spark`) and the tests of compute run.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from mzsql.adapter.dataflows import dataflows
from mzsql.adapter.dataflows.dataflows import Dataflows
from mzsql.compute.controller import controller
from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle, State
from mzsql.compute.replica.scheduling.scheduler import Scheduler
from mzsql.compute.replica.step.step import StepTools
from mzsql.dbapi import connection

_consider = Scheduler._consider
_prepare, _tools = DataflowLifecycle.prepare, DataflowLifecycle._tools
#: What steps append to arrangements is written to their shards after so many seconds, by when most views here are dropped: nobody reads
#: the shards of an arrangement whose replica lives, and restarts have tests of their own.
FLUSH_SECONDS = 60.0


class Gate:
    """Holds steps back while it is closed: what changes meanwhile comes to each view in one step, of several times. Hydrations go on.

    Attributes:
        sparing: whether nothing is made in advance for steps to come: no plans, and no texts without the guards that values like those
            of the last step do not need. For views that take a step or two, each over several times.
    """

    def __init__(self) -> None:
        self.sparing = False
        self._closed = False
        self._held: set[Scheduler] = set()

    def close(self) -> None:
        """Have no view go on from now on."""
        self._closed = True

    def open(self) -> None:
        """Have them go on."""
        if self._closed:
            self._closed = False
            while self._held:
                self._held.pop()._installed.wake()

    def consider(
        self, scheduler: Scheduler, flow: DataflowLifecycle, *args: Any, **given: Any
    ) -> None:
        """In place of `Scheduler._consider`."""
        if self._closed and flow.state is State.RUNNING:
            self._held.add(scheduler)
            if self._closed:
                return  # whoever opens it finds the scheduler held
        _consider(scheduler, flow, *args, **given)

    def prepare(self, flow: DataflowLifecycle, rest: Callable[[], None]) -> None:
        """In place of `DataflowLifecycle.prepare`."""
        if not self.sparing:
            _prepare(flow, rest)

    def tools(self, flow: DataflowLifecycle) -> StepTools:
        """In place of `DataflowLifecycle._tools`."""
        made = _tools(flow)
        return dataclasses.replace(made, later=_not_at_all) if self.sparing else made


def _not_at_all(_: Callable[[], None]) -> None:
    """In place of what runs work that no step needs."""


def _no_spark() -> Any:
    raise AssertionError("these views are to be kept without Spark")


def _settings(**given: Any) -> ComputeSettings:
    return ComputeSettings(**given, step_threads=1, flush_seconds=FLUSH_SECONDS)


def _step_engine(_: Dataflows) -> str:
    return "duckdb"


@contextlib.contextmanager
def in_process() -> Iterator[Gate]:
    """Environments that are opened within keep their views without Spark; what holds back their steps."""
    gate = Gate()

    def consider(scheduler: Scheduler, flow: DataflowLifecycle, *args: Any, **given: Any) -> None:
        gate.consider(scheduler, flow, *args, **given)

    def prepare(flow: DataflowLifecycle, rest: Callable[[], None]) -> None:
        gate.prepare(flow, rest)

    def tools(flow: DataflowLifecycle) -> StepTools:
        return gate.tools(flow)

    with (
        mock.patch.object(Scheduler, "_consider", consider),
        mock.patch.object(DataflowLifecycle, "prepare", prepare),
        mock.patch.object(DataflowLifecycle, "_tools", tools),
        mock.patch.object(controller, "ComputeSettings", _settings),
        mock.patch.object(Dataflows, "step_engine", _step_engine),
        mock.patch.object(dataflows, "require_java", return_value=None),
        mock.patch.object(connection, "start_spark", _no_spark),
    ):
        yield gate
