"""What a refresh takes and costs: from a change of tables to the views that depend on them.

    python bench/refresh                                   # all cases
    python bench/refresh --scales 0.01 --rounds 6          # a quick look
    python bench/refresh --only a,b,e --scales 0.1,1 --rounds 60 --json found.json --directory /path/on/the/disk

bench/README.md says what each case is. At the end of a case the contents of its views are compared with what DuckDB computes from the same
rows; a difference ends the benchmark with an error. A line at the end of each case says whether its targets were met; the exit code says
nothing about that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
# The table of a case is that of bench/persist.
sys.path += [str(_ROOT / "bench/persist")]

# Found only once the folder is known.
# isort: off
import batches  # noqa: E402
import beside  # noqa: E402
import command  # noqa: E402
import endurance  # noqa: E402
import groups  # noqa: E402
import hydration  # noqa: E402
import oneshot  # noqa: E402
import openings  # noqa: E402
import operations  # noqa: E402
import options  # noqa: E402
import pipelines  # noqa: E402
import sustained  # noqa: E402
import ticks  # noqa: E402
from figures import Case, machine, run_cases, scratch, shown  # noqa: E402
from judge import WrongAnswer  # noqa: E402
from meter import Meter  # noqa: E402
# isort: on

CASES: dict[str, Callable[[options.Options, Meter], Case]] = {
    "a": ticks.few,
    "b": ticks.every,
    "c": batches.one_size,
    "d": batches.sizes,
    "e": operations.operations,
    "f": hydration.hydration,
    "g": beside.beside,
    "h": endurance.endurance,
    "i": oneshot.oneshot,
    "j": sustained.sustained,
    "k": pipelines.pipelines,
    "l": groups.groups,
    "n": openings.openings,
}


def main() -> None:
    parser = command.parser(__doc__, "".join(CASES))
    options.add_options(parser)
    given = parser.parse_args()
    try:
        found = run(given.only, options.options(given))
    except WrongAnswer as wrong:
        raise SystemExit(f"wrong answer: {wrong}") from wrong
    command.keep(found, given)


def run(letters: list[str], chosen: options.Options) -> dict[str, Any]:
    """Measure and print; everything for JSON."""
    meter = Meter()
    meter.install()
    with scratch(chosen.directory) as folder:
        about: dict[str, Any] = machine(folder)
    print("; ".join(f"{name} {shown(value)}" for name, value in about.items()))
    cases = {letter: lambda case=case: case(chosen, meter) for letter, case in CASES.items()}
    done = run_cases(letters, cases)
    return {"machine": about, "scales": chosen.scales, "rounds": chosen.rounds, "cases": done}


if __name__ == "__main__":
    main()
