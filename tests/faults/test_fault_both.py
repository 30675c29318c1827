"""PostgreSQL and S3 failing at the same time, by faults drawn from one seed.

``MZSQL_FAULT_SEED=7`` runs that seed alone: the same faults in the same order, each held as long; what the threads do meanwhile is the
machine's affair.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable

import pytest
from fault_cells import GROWING
from fault_persist import PersistLoad
from fault_place import Place
from fault_rows import ROWS
from fault_run import Step, run

_GIVEN = os.environ.get("MZSQL_FAULT_SEED")
SEEDS = [int(_GIVEN)] if _GIVEN else [1, 2]
STEPS = 6


def steps(seed: int) -> list[Step]:
    """Pairs of faults, and how long they last."""
    rng = random.Random(seed)
    of = {
        backend: [
            row for row in ROWS.values() if row.backend == backend and row.name not in GROWING
        ]
        for backend in ("postgres", "s3")
    }
    return [
        Step([rng.choice(of["postgres"]), rng.choice(of["s3"])], rng.uniform(0.3, 3.0))
        for _ in range(STEPS)
    ]


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_both_at_once(
    seed: int, place: Place, record_property: Callable[[str, object], None]
) -> None:
    schedule = steps(seed)
    told = "; then ".join(f"{step.names} for {step.seconds:.1f} s" for step in schedule)
    try:
        record_property("figures", run(PersistLoad, schedule, place))
    except BaseException as failure:
        failure.add_note(f"MZSQL_FAULT_SEED={seed}: {told}")
        raise
