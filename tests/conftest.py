"""Fixtures that every room shares: one Spark session for the whole run, and environments in temporary directories."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

# A run repeats: its examples follow from the tests. New ones are looked for with --hypothesis-profile=fresh (`make test-fresh`).
settings.register_profile("daily", derandomize=True)
settings.register_profile("fresh", derandomize=False, print_blob=True)
settings.load_profile("daily")

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> Iterator[None]:
    """SIGINT is what it is at a terminal, here and in what is started here; a shell that runs tests in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the run: two cores, no UI, UTC, a warehouse that vanishes."""
    from mzsql.compute.spark_session import local_session

    session = local_session(cores=2)
    yield session
    session.stop()


@pytest.fixture
def tmp_env(tmp_path: Path) -> Path:
    """A path for a fresh environment; nothing is there yet."""
    return tmp_path / "env"
