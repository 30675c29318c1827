"""What sessions get through: inserts, updates and peeks, of many sessions against one, measured in turns in one run.

    python bench/coordinator                       # all cases
    python bench/coordinator --quick               # a quick look
    python bench/coordinator --only a,b --json found.json

Case c starts Spark for index lookups; --no-index leaves them out. bench/README.md says what each case is. A line at the end of each says
whether its targets were met; the exit code says nothing about it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import gettempdir
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
# The table of a case is that of bench/persist.
sys.path += [str(_ROOT / "bench/persist")]

# Found only once the folder is known.
# isort: off
import command  # noqa: E402
import peeks  # noqa: E402
import writes  # noqa: E402
from figures import Case, machine, run_cases, scratch, shown  # noqa: E402
# isort: on

LETTERS = "abc"


def main() -> None:
    parser = command.parser(__doc__, LETTERS, quick="few repeats: only a look")
    parser.add_argument("--no-index", action="store_true", help="no index lookups, without Spark")
    given = parser.parse_args()
    found = run(given.only, quick=given.quick, index=not given.no_index)
    command.keep(found, given)


def run(letters: list[str], *, quick: bool, index: bool) -> dict[str, Any]:
    """Measure and print; everything for JSON."""
    with scratch(Path(gettempdir())) as folder:
        about: dict[str, Any] = machine(folder)
        print("; ".join(f"{name} {shown(value)}" for name, value in about.items()))
        cases: dict[str, Callable[[], Case]] = {
            "a": lambda: writes.inserts(folder, quick=quick),
            "b": lambda: writes.updates(folder, quick=quick),
            "c": lambda: reads(folder, quick=quick, index=index),
        }
        done = run_cases(letters, cases)
    return {"machine": about, "quick": quick, "cases": done}


def reads(folder: Path, *, quick: bool, index: bool) -> Case:
    """Peeks that need no Spark job, by 1, 8 and 64 sessions."""
    case = Case("c", "SELECT on the fast paths, and a lookup in a DuckDB table of the same rows")
    seconds = 1.0 if quick else 3.0
    lookup = peeks.baseline(seconds)
    for found in peeks.run(folder, seconds=seconds, index=index):
        for rate in found.rates:
            case.row(
                peek=found.name,
                sessions=rate.sessions,
                per_second=rate.per_second,
                p50_ms=rate.p50,
                p95_ms=rate.p95,
                p99_ms=rate.p99,
                over_DuckDB=rate.p50 / lookup if rate.sessions == 1 else None,
            )
        first = found.rates[0]
        best = max(rate.per_second for rate in found.rates)
        if found.name not in peeks.COMPUTED:
            case.target(f"{found.name}: median ms", first.p50, most=peeks.TARGET_MS)
            case.target(f"{found.name}: a second", best, least=peeks.TARGET_RATE)
        case.target(f"{found.name}: durable writes", float(found.writes), most=0)
    case.notes.append(f"The lookup in DuckDB takes {lookup:.2f} ms.")
    return case


if __name__ == "__main__":
    main()
