"""The fault matrix: each fault of PostgreSQL, of S3 and of the connections to them, under each workload that meets it.

Promise: no acknowledged write is lost or doubled, no call hangs beyond its timeout, errors name the backend and its URL without secrets,
and once the fault is over everything works again without being opened anew. ``pytest -v`` prints the matrix, a line for each cell.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_oracle import OracleLoad
from fault_persist import PersistLoad
from fault_place import Place, small_disk
from fault_rows import ROWS, Row
from fault_run import Load, run
from fault_sql import SqlLoad

LOADS: dict[str, type[Load]] = {"persist": PersistLoad, "oracle": OracleLoad, "sql": SqlLoad}
EVERY_DAY = {
    ("postgres restarted as after a crash", "persist"),
    ("postgres backends terminated again and again", "persist"),
    ("postgres cut when it has committed", "persist"),
    ("s3 bodies end early now and then", "persist"),
    ("s3 500 always after it wrote", "persist"),
    ("postgres cut when it has committed", "oracle"),
}


GROWING = ("postgres disk full", "postgres cannot extend its files")
"""Faults that only tables notice that grow."""


def cells() -> Iterator[object]:
    for row in ROWS.values():
        for load in LOADS:
            if load == "oracle" and (row.backend == "s3" or row.name in GROWING):
                continue  # an oracle has nothing on S3, and a table of one row
            marks = [] if (row.name, load) in EVERY_DAY else [pytest.mark.long]
            yield pytest.param(row, load, id=f"{row.name} | {load}", marks=marks)


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


@pytest.mark.parametrize(("row", "load"), list(cells()))
def test_matrix(
    row: Row,
    load: str,
    place: Place,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    if row.name == GROWING[0]:
        request.getfixturevalue("disk")()
    record_property("figures", run(LOADS[load], [(row, row.seconds)], place))
