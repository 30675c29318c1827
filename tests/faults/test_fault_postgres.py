"""The fault matrix: each fault of PostgreSQL and of the connections to it, under each workload.

Promise: no acknowledged write is lost or doubled, no call hangs beyond its timeout, errors name the backend and its URL without secrets,
and once the fault is over everything works again without being opened anew. ``pytest -vv -o addopts=`` prints the matrix, a line for each
cell.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_cells import GROWING, cells, go_through
from fault_place import Place, small_disk
from fault_rows import Row


@pytest.fixture
def disk(place: Place) -> Iterator[Callable[[], None]]:
    """Moves the place's tables to a small file system, where one can be had."""
    owner = (place.postgres.directory / "data").stat().st_uid
    with tempfile.TemporaryDirectory(prefix="mzfull", dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        with small_disk(Path(directory), 48, owner) as missing:

            def move() -> None:
                if missing is not None:
                    pytest.skip(missing)
                place.move_to_disk(Path(directory))

            yield move
            if place.disk is not None:
                place.drop_from_disk()


@pytest.mark.parametrize(("row", "load"), cells("postgres"))
def test_matrix(
    row: Row,
    load: str,
    place: Place,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    if row.name == GROWING[0]:
        request.getfixturevalue("disk")()
    if row.name == GROWING[1] and shutil.which("prlimit") is None:
        pytest.skip("no prlimit of util-linux here")
    record_property("figures", go_through(row, load, place))
