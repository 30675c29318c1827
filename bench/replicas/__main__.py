"""What it costs and gives to have replicas in processes of their own: beside the in-process one, a second one, idle ones, more executors,
and ones that are killed.

    python bench/replicas                                            # all cases
    python bench/replicas --scales 0.01 --rounds 9 --idle 30 --killing 30   # a quick look
    python bench/replicas --only a,b --scales 0.1 --rounds 60 --json found.json --directory /path/on/the/disk

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
# The table of a case is that of bench/persist; the views, their judge and the transactions are those of bench/refresh.
sys.path += [str(_ROOT / "bench/persist"), str(_ROOT / "bench/refresh")]

# Found only once the folders are known.
# isort: off
import asked  # noqa: E402
import command  # noqa: E402
import executors  # noqa: E402
import freshness  # noqa: E402
import idle  # noqa: E402
import killed  # noqa: E402
import second  # noqa: E402
from figures import Case, machine, run_cases, scratch, shown  # noqa: E402
from judge import WrongAnswer  # noqa: E402
from processes import NoReplica  # noqa: E402
# isort: on

CASES: dict[str, Callable[[asked.Asked], Case]] = {
    "a": freshness.freshness,
    "b": second.second,
    "c": idle.idle,
    "d": executors.executors,
    "e": killed.killed,
}


def main() -> None:
    parser = command.parser(__doc__, "".join(CASES))
    asked.add_options(parser)
    given = parser.parse_args()
    try:
        found = run(given.only, asked.asked(given))
    except WrongAnswer as wrong:
        raise SystemExit(f"wrong answer: {wrong}") from wrong
    except NoReplica as none:
        raise SystemExit(str(none)) from none
    command.keep(found, given)


def run(letters: list[str], chosen: asked.Asked) -> dict[str, Any]:
    """Measure and print; everything for JSON."""
    with scratch(chosen.directory) as folder:
        about: dict[str, Any] = machine(folder)
    print("; ".join(f"{name} {shown(value)}" for name, value in about.items()))
    cases = {letter: lambda case=case: case(chosen) for letter, case in CASES.items()}
    done = run_cases(letters, cases)
    return {"machine": about, "scales": chosen.scales, "rounds": chosen.rounds, "cases": done}


if __name__ == "__main__":
    main()
