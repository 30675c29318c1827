"""Short turns of threads: a process that opens an environment takes them, one that has chosen its own keeps those."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mzsql


@pytest.fixture(autouse=True)
def interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize(("chosen", "taken"), [(0.005, 0.0005), (0.02, 0.02), (0.0001, 0.0001)])
def test_an_environment_shortens_the_turns_that_nobody_chose(
    tmp_path: Path, chosen: float, taken: float
) -> None:
    sys.setswitchinterval(chosen)
    with mzsql.connect(tmp_path / "env") as connection:
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
        assert sys.getswitchinterval() == pytest.approx(taken)
