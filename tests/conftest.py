"""Fixtures that every room shares: one Spark session and one PostgreSQL for the whole run, and environments in temporary directories."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from answers_kit import make_database
from hypothesis import HealthCheck, settings
from msgspec import structs

# A run repeats: its examples follow from the tests. New ones are looked for with --hypothesis-profile=fresh (`make test-fresh`).
# How long an example takes says more about what else the machine does than about mzsql, so slow ones are no failure.
_PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("daily", _PATIENT, derandomize=True)
settings.register_profile("fresh", _PATIENT, derandomize=False, print_blob=True)
settings.load_profile("daily")

# JVMs of tests, and of programs that tests start, run everything few times: without this, half of their work is optimizing code that
# will not be run often enough to repay it. A person's own options stand.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

#: Markers of tests that have a statement do what takes minutes where the machine is slow: start Spark, hydrate, run large examples.
_LENGTHY = ("spark", "long", "soak")
#: How long such a statement may take, where the test or its environment says nothing else.
_PATIENCE = "20 min"

if TYPE_CHECKING:
    import psycopg
    from postgres_server import PostgresServer
    from pyspark.sql import SparkSession


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadgroup`` files that need Spark are one worker's, as its session is one; the others are shared out by files."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):  # type: ignore[misc]  # xdist is not typed
        def _split_scope(self, nodeid: str) -> str:
            return _needs_spark(config.rootpath / nodeid.partition("::")[0])

    return Scheduling(config, log)


@functools.cache
def _needs_spark(file: Path) -> str:
    return "spark" if "mark.spark" in file.read_text() else str(file)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> Iterator[None]:
    """SIGINT is what it is at a terminal, here and in what is started here; a shell that runs tests in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def patience(request: pytest.FixtureRequest) -> Iterator[None]:
    """No statement of a test that takes long ends by the default of ``statement_timeout``: that would say how fast the machine is.

    The test's own timeout ends it. Programs that tests start set theirs.
    """
    with pytest.MonkeyPatch.context() as patch:
        if any(request.node.get_closest_marker(name) for name in _LENGTHY):
            from mzsql.catalog.settings import VARIABLES

            patient = structs.replace(VARIABLES["statement_timeout"], default=_PATIENCE)
            patch.setitem(VARIABLES, "statement_timeout", patient)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The one Spark session of the run: two cores, no UI, UTC, a warehouse that vanishes."""
    from mzsql.compute.engines.spark_session import local_session

    session = local_session(cores=2)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def answers_server() -> Iterator[PostgresServer]:
    """The PostgreSQL of the run that says what the right answer is."""
    from postgres_server import PostgresServer

    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="module")
def postgres(
    answers_server: PostgresServer, request: pytest.FixtureRequest
) -> Iterator[psycopg.Connection[Any]]:
    """A session in a database of the module's own, which is empty."""
    with make_database(answers_server, request.module.__name__.rpartition(".")[2]) as session:
        yield session


@pytest.fixture
def tmp_env(tmp_path: Path) -> Path:
    """A path for a fresh environment; nothing is there yet."""
    return tmp_path / "env"
