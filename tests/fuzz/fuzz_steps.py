"""Materialized views kept up to date in this process: real shards, arrangements, lookups and steps, and no Spark to wait for.

Promise: within `in_process` every environment that is opened behaves as with ``step_engine = 'duckdb'``, with one thread for steps.
Trade-off: hydrations by Spark are what `--spark` (within `hydrated_by_spark`) and the tests of compute run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from mzsql.adapter.dataflows import dataflows
from mzsql.adapter.dataflows.dataflows import Dataflows
from mzsql.compute.controller import controller
from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.replica.scheduling.lifecycle import DataflowLifecycle, State
from mzsql.compute.replica.scheduling.scheduler import Scheduler
from mzsql.dbapi import connection

_consider = Scheduler._consider


class Gate:
    """Holds steps back while it is closed: what changes meanwhile comes to each view in one step, of several times. Hydrations go on."""

    def __init__(self) -> None:
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


def _no_spark() -> Any:
    raise AssertionError("these views are to be kept without Spark")


def _settings(**given: Any) -> ComputeSettings:
    return ComputeSettings(**given, step_threads=1)


def _step_engine(_: Dataflows) -> str:
    return "duckdb"


@contextlib.contextmanager
def in_process() -> Iterator[Gate]:
    """Environments that are opened within keep their views without Spark; what holds back their steps."""
    gate = Gate()

    def consider(scheduler: Scheduler, flow: DataflowLifecycle, *args: Any, **given: Any) -> None:
        gate.consider(scheduler, flow, *args, **given)

    with (
        mock.patch.object(Scheduler, "_consider", consider),
        mock.patch.object(controller, "ComputeSettings", _settings),
        mock.patch.object(Dataflows, "step_engine", _step_engine),
        mock.patch.object(dataflows, "require_java", return_value=None),
        mock.patch.object(connection, "_start_spark", _no_spark),
    ):
        yield gate
