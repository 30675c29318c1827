"""What it costs a hydration that its replica tells how far each node is, and how long it takes to ask.

    python bench/hydration                                   # 22 views of TPC-H at SF 0.1 and 1, 12 pairs; then 200 views of 20 nodes
    python bench/hydration --scales 0.01 --pairs 4 --dataflows 20   # a quick look
    python bench/hydration --scales 0.1 --json found.json --directory /path/on/the/disk

bench/README.md says what each case is. A line at the end says whether its targets were met; the exit code says nothing about that.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
# The table of a case is that of bench/persist, TPC-H's environment that of bench/refresh, replicas' processes those of bench/replicas.
sys.path += [str(_ROOT / "bench" / name) for name in ("persist", "refresh", "replicas")]

# Found only once the folders are known.
# isort: off
import answers  # noqa: E402
import command  # noqa: E402
import options  # noqa: E402
import told  # noqa: E402
from figures import machine, run_cases, scratch, shown  # noqa: E402
# isort: on


def main() -> None:
    parser = command.parser(__doc__, "ab")
    options.add_queries(parser)
    options.add_scales(parser)
    options.add_directory(parser)
    parser.add_argument(
        "--pairs",
        type=options.above_0(int, "a number above 0"),
        default=12,
        metavar="N",
        help="hydrations with telling and as many without, beside those that warm up (12)",
    )
    for name, default, what in (
        ("dataflows", 200, "views of case b"),
        ("nodes", 20, "nodes of each of their plans"),
        ("replicas", 4, "replicas that each run all of them"),
        ("rounds", 10, "times that each relation is asked"),
    ):
        parser.add_argument(
            f"--{name}",
            type=options.above_0(int, "a number above 0"),
            default=default,
            metavar="N",
            help=f"{what} ({default})",
        )
    given = parser.parse_args()
    with scratch(given.directory) as folder:
        about: dict[str, Any] = machine(folder)
    print("; ".join(f"{name} {shown(value)}" for name, value in about.items()))
    cases = {
        "a": lambda: told.told(given.scales, given.queries, given.pairs, given.directory),
        "b": lambda: answers.answers(
            given.dataflows, given.nodes, given.replicas, given.rounds, given.directory
        ),
    }
    done = run_cases(given.only, cases)
    sizes = {"dataflows": given.dataflows, "nodes": given.nodes, "replicas": given.replicas}
    found = {"machine": about, "scales": given.scales, "pairs": given.pairs, **sizes, "cases": done}
    command.keep(found, given)


if __name__ == "__main__":
    main()
