"""Which faults meet which workloads, and which of these run every day."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fault_oracle import OracleLoad
from fault_persist import PersistLoad
from fault_place import Place
from fault_rows import ROWS, Row
from fault_run import Load, Step, run
from fault_sql import SqlLoad

LOADS: dict[str, type[Load]] = {"persist": PersistLoad, "oracle": OracleLoad, "sql": SqlLoad}
EVERY_DAY = {
    ("postgres restarted as after a crash", "persist"),
    ("postgres cut when it has committed", "persist"),
    ("postgres cut when it has committed", "oracle"),
}


GROWING = ("postgres disk full", "postgres cannot extend its files")
"""Faults that only tables notice that grow."""


SQL = {
    "postgres restarted as after a crash",
    "postgres down beyond all timeouts",
    "postgres backends terminated again and again",
    "postgres cut in the middle of a commit's request",
    "postgres cut when it has committed",
    "postgres in a black hole",
    "postgres read-only",
    GROWING[0],
    "s3 500 now and then",
    "s3 resets after it wrote",
    "s3 bodies end early now and then",
    "s3 cut in the middle of an upload",
    "s3 refuses connections",
    "s3 access denied",
}
"""Faults that SQL sessions go through too; one of each kind, as they stand on the same shards."""


def cells(backend: str) -> list[object]:
    """The rows of a backend under each workload, as parameters ``row`` and ``load``."""
    return list(_cells(backend))


def _cells(backend: str) -> Iterator[object]:
    for row in ROWS.values():
        for load in LOADS:
            if row.backend != backend or (load == "sql" and row.name not in SQL):
                continue
            if load == "oracle" and (backend == "s3" or row.name in GROWING):
                continue  # an oracle has nothing on S3, and a table of one row
            marks = [] if (row.name, load) in EVERY_DAY else [pytest.mark.long]
            yield pytest.param(row, load, id=f"{row.name} | {load}", marks=marks)


def go_through(row: Row, load: str, place: Place) -> dict[str, int]:
    """One cell; figures of what happened."""
    # A statement has a minute, so it may sit out what others are failed by.
    patient = load == "sql" and row.outlasts
    step = Step([row], 5.0 if patient else row.seconds, row.outlasts and not patient)
    return run(LOADS[load], [step], place)
