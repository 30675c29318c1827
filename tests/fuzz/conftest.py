"""The modules next to the tests are imported by their plain names; one PostgreSQL serves the whole run."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fuzz_engines import Worlds


@pytest.fixture(scope="module")
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worlds]:
    """mzsql without Spark, PostgreSQL and DuckDB, with nothing in them."""
    with Worlds(tmp_path_factory.mktemp("fuzz") / "env") as made:
        yield made
