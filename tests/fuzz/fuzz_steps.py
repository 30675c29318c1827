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
from mzsql.compute.protocols import ComputeSettings
from mzsql.dbapi import connection


def _no_spark() -> Any:
    raise AssertionError("these views are to be kept without Spark")


def _settings(**given: Any) -> ComputeSettings:
    return ComputeSettings(**given, step_threads=1)


def _step_engine(_: Dataflows) -> str:
    return "duckdb"


@contextlib.contextmanager
def in_process() -> Iterator[None]:
    """Environments that are opened within keep their views without Spark."""
    with (
        mock.patch.object(controller, "ComputeSettings", _settings),
        mock.patch.object(Dataflows, "step_engine", _step_engine),
        mock.patch.object(dataflows, "require_java", return_value=None),
        mock.patch.object(connection, "_start_spark", _no_spark),
    ):
        yield
