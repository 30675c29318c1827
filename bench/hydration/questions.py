"""What is asked about hydration in case b, and what the answers take: in a process of its own where it is started with an environment and a
number of rounds.
"""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from time import perf_counter, process_time

import mzsql
from mzsql.dbapi import Connection

#: What is asked, by the name in the table.
ASKED = {
    name: f"SELECT * FROM {schema}.{name}"
    for schema, name in (
        ("mz_internal", "mz_hydration_statuses"),
        ("mz_internal", "mz_compute_hydration_statuses"),
        ("mz_internal", "mz_compute_hydration_times"),
        ("mz_internal", "mz_compute_operator_hydration_statuses"),
        ("mz_internal", "mz_compute_operator_hydration_statuses_per_worker"),
        ("mz_internal", "mz_compute_dataflow_statuses"),
        ("mz_internal", "mz_unhydrated_objects"),
    )
}
for _script in ("which_node_is_stuck", "hydration_progress"):
    ASKED[_script] = (files("mzsql.scripts") / "diagnostics" / f"{_script}.sql").read_text()


def milliseconds(con: Connection, text: str, rounds: int) -> list[tuple[float, float]]:
    """What the first answer takes, and the next ones: in time, and in the time of this process's processors."""
    took = []
    for _ in range(rounds):
        begun, cpu = perf_counter(), process_time()
        con.execute(text).fetchall()
        took.append(((perf_counter() - begun) * 1000, (process_time() - cpu) * 1000))
    return took


def main() -> None:
    env, rounds = sys.argv[1:]
    with mzsql.connect(env, read_only=True) as con:
        found = {name: milliseconds(con, text, int(rounds)) for name, text in ASKED.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
