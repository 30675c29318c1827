"""The fault matrix: each fault of S3 and of the connections to it, under each workload that meets it.

Promise: no acknowledged write is lost or doubled, no call hangs beyond its timeout, errors name the backend and its URL without secrets,
and once the fault is over everything works again without being opened anew. ``pytest -vv -o addopts=`` prints the matrix, a line for each
cell.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fault_cells import cells, go_through
from fault_place import Place
from fault_rows import Row


@pytest.mark.parametrize(("row", "load"), cells("s3"))
def test_matrix(
    row: Row, load: str, place: Place, record_property: Callable[[str, object], None]
) -> None:
    record_property("figures", go_through(row, load, place))
