"""Materialized views kept up to date in this process: real shards, arrangements, lookups and steps, and no Spark to wait for.

Promise: within `in_process` every environment that is opened behaves as with ``step_engine = 'duckdb'``, with one thread for steps.
Trade-off: hydrations by Spark are what `--spark` and the tests of compute run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import msgspec

from mzsql.adapter.dataflows import dataflows
from mzsql.compute.protocols import ComputeSettings
from mzsql.compute.replica.controller import ComputeController
from mzsql.dbapi import connection


def _no_spark() -> Any:
    raise AssertionError("these views are to be kept without Spark")


def _controller(*args: Any, settings: ComputeSettings, **more: Any) -> ComputeController:
    mine = msgspec.structs.replace(settings, step_engine="duckdb", step_threads=1)
    return ComputeController(*args, settings=mine, **more)


@contextlib.contextmanager
def in_process() -> Iterator[None]:
    """Environments that are opened within keep their views without Spark."""
    with (
        mock.patch.object(dataflows, "ComputeController", _controller),
        mock.patch.object(dataflows, "require_java", return_value=None),
        mock.patch.object(connection, "_start_spark", _no_spark),
    ):
        yield
